#include "properties/sequential.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fractus {

EProcess::EProcess(std::int64_t cells, std::int64_t contexts)
    : cells_(cells), count_(static_cast<std::size_t>(cells * contexts)), total_(static_cast<std::size_t>(contexts)) {}

void EProcess::observe(std::int64_t cell, double log_upper, std::int64_t context) {
  if (cell < 0 || cell >= cells_) throw std::out_of_range("cell: outside of those of this e-process");
  auto& total = total_.at(static_cast<std::size_t>(context));
  auto& count = count_[static_cast<std::size_t>(context * cells_ + cell)];
  ++draws_;
  if (!(log_upper > -std::numeric_limits<double>::infinity())) {
    log_largest_ = std::numeric_limits<double>::infinity();
    return;
  }
  const double log_bet =
      std::log((static_cast<double>(count) + 0.5) / (static_cast<double>(total) + static_cast<double>(cells_) / 2));
  log_value_ += log_bet - log_upper;
  ++count;
  ++total;
  // The quotient has three roundings, the logarithm 1 ulp, difference and sum one each: 8u of the magnitudes covers it.
  rounding_ += 0x1p-50 * (1 + std::fabs(log_bet) + std::fabs(log_upper) + std::fabs(log_value_));
  log_largest_ = std::max(log_largest_, log_value());
}

double Level::log_threshold() const { return std::log(static_cast<double>(processes + 1) / total); }

// The mixture's likelihood of counts a_x with sum n is Gamma(K/2)/Gamma(n + K/2) prod Gamma(a_x + 1/2)/Gamma(1/2), the
// likeliest law's prod (a_x/n)^a_x. Their ratio is largest where one cell has every draw, since g(a) = a log a -
// log Gamma(a + 1/2) is convex: g''(a) = 1/a - trigamma(a + 1/2), and trigamma(a + 1/2) = sum_k (a + k + 1/2)^-2 <
// sum_k of the integral of t^-2 over [a + k, a + k + 1] = 1/a. There the ratio is the one below (for two cells:
// Willems, Shtarkov and Tjalkens 1995).
double regret(double draws, std::int64_t cells) {
  const double half = static_cast<double>(cells) / 2;
  return std::lgamma(0.5) + std::lgamma(draws + half) - std::lgamma(draws + 0.5) - std::lgamma(half);
}

// Write n_c for the draws in context c and f_c for their shares by cell. Then by definition of the regret
//   log E >= sum_c [n_c KL(f_c, p) - regret(n_c)] - n slack,
// and regret is concave in n (its second derivative is trigamma(n + K/2) - trigamma(n + 1/2) <= 0), so over C contexts
// it adds up to C regret(n/C) at most. Take in each context the set A_c where q(. | c) exceeds p most. By Pinsker's
// inequality and Jensen's, sum_c n_c KL(f_c, p) >= 2 n D^2 where D is the mean over the draws of [x in A_c] - p(A_c).
// The mean of q(A_c | c) - p(A_c) is tau, and D falls short of it by more than sqrt(log(1/miss) / (2n)) with
// probability at most miss (Azuma 1967: the conditional range of each term is 1).
double smallest_shown(std::int64_t draws, std::int64_t cells, std::int64_t contexts, double slack, double log_threshold,
                      double miss) {
  if (draws <= 0) return 1;
  const auto n = static_cast<double>(draws), c = static_cast<double>(contexts);
  const double needed = log_threshold + c * regret(n / c, cells) + n * slack;
  return std::sqrt(needed / (2 * n)) + std::sqrt(-std::log(miss) / (2 * n));
}

}  // namespace fractus
