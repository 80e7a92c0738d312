#include "oracle/sample_tokens.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "oracle/companion_dense.h"
#include "oracle/companion_softmax.h"
#include "oracle/cross_entropy_expected.h"

namespace fractus::oracle::sample_tokens {
namespace {

// x / temperature. The temperature is rounded once and may be applied as a reciprocal: 3 roundings of x. Applied to h
// instead, they are roundings of |h||W|, of which the logits' error is gamma(d + 1) times, so 3 of them are at most
// 3/(d + 1) of it.
template <DType judged>
void divide(Row<Companion<judged>>& x, double temperature, std::size_t d) {
  const double of_h = 3 / static_cast<double>(d + 1) * (1 + 0x1p-10), rounding = gamma<judged>(3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x.e[i] = (x.e[i] * (1 + of_h) + rounding * (x.m[i] + x.e[i])) / temperature;
    x.v[i] /= temperature;
    x.m[i] /= temperature;
  }
}

// The largest |log(computed / true)|.
template <DType judged>
double slack_of(const Row<Companion<judged>>& p) {
  double slack = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double value = static_cast<double>(p.v[i]);
    if (value < least_probability) continue;
    const double moved = error(p.get(i)) / value;
    slack = std::max(slack, moved < 1 ? -std::log1p(-moved) : std::numeric_limits<double>::infinity());
  }
  return slack * (1 + 0x1p-30);
}

template <DType judged>
Law law_in(const Array& h, const Array& W, double temperature, int threads) {
  const auto N = static_cast<std::size_t>(h.shape[0]), d = static_cast<std::size_t>(h.shape[1]),
             V = static_cast<std::size_t>(W.shape[0]);
  const Stored<judged> x = times_transposed(Leaves<judged>{h.values.data(), N, d},
                                            Leaves<judged>{W.values.data(), V, d}, threads, Sums::rounded);
  const Chain chain{V - 1, std::min<std::size_t>(V - 1, cross_entropy::most_rescalings)};
  Law law{std::vector<double>(N * V), std::vector<double>(N)};
  for_each(N, threads, [&](std::size_t n) {
    Row<Companion<judged>> y = x.row(n);
    divide(y, temperature, d);
    shift(y, largest(y));
    const Row<Companion<judged>> p = probabilities(y, log_of(total(exponentials(y), chain)), chain);
    for (std::size_t i = 0; i < V; ++i) law.probability[n * V + i] = static_cast<double>(p.v[i]);
    law.slack[n] = slack_of(p);
  });
  return law;
}

}  // namespace

Law law(DType dtype, const Array& h, const Array& W, double temperature, int threads) {
  if (h.shape.size() != 2 || W.shape.size() != 2 || h.shape[1] != W.shape[1] || h.values.empty() || W.values.empty() ||
      !(temperature > 0))
    throw std::invalid_argument("sample_tokens: shapes " + to_string(h.shape) + ", " + to_string(W.shape) +
                                ", temperature " + std::to_string(temperature));
  return dtype == DType::float32 ? law_in<DType::float32>(h, W, temperature, threads)
                                 : law_in<DType::float64>(h, W, temperature, threads);
}

}  // namespace fractus::oracle::sample_tokens
