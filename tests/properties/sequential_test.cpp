// Sequential tests of draws: the level is kept at every stopping time, and what is said to be seen is seen.
#include "properties/sequential.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "properties/random.h"

namespace fractus {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t draw(Random& random, const std::vector<double>& law) {
  double left = random.uniform();
  for (std::size_t x = 0; x + 1 < law.size(); ++x)
    if ((left -= law[x]) < 0) return x;
  return law.size() - 1;
}

std::vector<double> uniform_law(std::size_t cells) { return std::vector<double>(cells, 1.0 / double(cells)); }

// Half of the cells gain `bias` together, the other half lose it: a total variation of `bias`, in the direction that
// the divergence sees least of.
std::vector<double> biased(std::size_t cells, double bias) {
  std::vector<double> law = uniform_law(cells);
  for (std::size_t x = 0; x < cells; ++x) law[x] += (x < cells / 2 ? 2 : -2) * bias / double(cells);
  return law;
}

// The expected value of the process after `length` draws of `right`, with bets against null * exp(slack), over all
// sequences. Contexts: the draw before.
double expectation(const std::vector<double>& right, const std::vector<double>& null, double slack, int length,
                   bool contexts) {
  const std::size_t cells = right.size();
  double sum = 0;
  std::size_t sequences = 1;
  for (int t = 0; t < length; ++t) sequences *= cells;
  for (std::size_t code = 0; code < sequences; ++code) {
    EProcess process(std::int64_t(cells), contexts ? std::int64_t(cells) : 1);
    double probability = 1;
    std::size_t rest = code, before = 0;
    for (int t = 0; t < length; ++t, rest /= cells) {
      const std::size_t x = rest % cells;
      probability *= right[x];
      process.observe(std::int64_t(x), std::log(null[x]) + slack, contexts ? std::int64_t(before) : 0);
      before = x;
    }
    sum += probability * std::exp(process.log_value());
  }
  return sum;
}

// Protects: Ville's premise, exactly and not by simulation. Under the null the expectation is 1, with overlapping pairs
// as well; under every law within the slack it is at most 1. Without the slack such a law makes it larger: it is
// needed.
TEST(EProcess, IsASupermartingaleUnderEveryLawWithinTheSlack) {
  const std::vector<double> null{0.5, 0.3, 0.2};
  EXPECT_NEAR(expectation(null, null, 0, 7, false), 1, 1e-12);
  EXPECT_NEAR(expectation(null, null, 0, 7, true), 1, 1e-12);
  const double slack = 0.1;
  double without = 0;
  for (double tilt : {-0.09, 0.05, 0.08}) {
    std::vector<double> right{0.5 * std::exp(tilt), 0.3 * std::exp(-tilt), 0};
    right[2] = 1 - right[0] - right[1];
    ASSERT_LE(std::fabs(std::log(right[2] / null[2])), slack);
    EXPECT_LE(expectation(right, null, slack, 7, false), 1);
    EXPECT_LE(expectation(right, null, slack, 7, true), 1);
    without = std::max(without, expectation(right, null, 0, 7, false));
  }
  EXPECT_GT(without, 1.001);
}

// Protects: right samplers, at every stopping time. The share of null runs that ever reach 1/alpha is below alpha, for
// an alpha large enough to be seen. Control: draws that are biased by 5 %
// break this line.
TEST(EProcess, RarelyReachesOneOverAlphaUnderTheNull) {
  constexpr int runs = 2000, draws = 3000;
  const double alpha = 0.1;
  const auto share = [&](std::size_t cells, std::int64_t contexts, double bias) {
    Random random(20260 + cells);
    const std::vector<double> law = biased(cells, bias);
    int reached = 0;
    for (int run = 0; run < runs; ++run) {
      EProcess process(std::int64_t(cells), contexts);
      std::size_t before = 0;
      for (int t = 0; t < draws && process.log_largest() < -std::log(alpha); ++t) {
        const std::size_t x = draw(random, law);
        process.observe(std::int64_t(x), -std::log(double(cells)), std::int64_t(before) % contexts);
        before = x;
      }
      reached += process.log_largest() >= -std::log(alpha);
    }
    return reached / double(runs);
  };
  // Three standard errors of a share of alpha.
  const double margin = 3 * std::sqrt(alpha * (1 - alpha) / runs);
  for (std::size_t cells : {2, 8}) {
    EXPECT_LE(share(cells, 1, 0), alpha + margin);
    EXPECT_LE(share(cells, 2, 0), alpha + margin);
  }
  // And no far smaller one: the supremum uses the inequality up, but for the overshoot.
  EXPECT_GE(share(4, 1, 0), alpha / 2);
  EXPECT_GT(share(2, 1, 0.05), alpha + margin);
}

// Protects: the figure that reports state. The regret is attained by draws that are all alike and exceeded by none.
TEST(EProcess, FallsShortOfTheLikeliestLawByTheRegretAtMost) {
  EXPECT_TRUE(rc::check("regret", [] {
    const auto cells = *rc::gen::inRange<std::int64_t>(2, 9);
    const auto counts = *rc::gen::container<std::vector<int>>(std::size_t(cells), rc::gen::inRange(0, 30));
    const int n = std::accumulate(counts.begin(), counts.end(), 0);
    EProcess process(cells);
    double likeliest = 0;
    for (std::size_t x = 0; x < counts.size(); ++x)
      for (int k = 0; k < counts[x]; ++k) {
        process.observe(std::int64_t(x), 0);
        likeliest += std::log(counts[x] / double(n));
      }
    RC_ASSERT(likeliest - process.log_value() <= regret(n, cells) + 1e-9);
  }));
  for (std::int64_t cells : {2, 7}) {
    EProcess alike(cells);
    for (int t = 0; t < 50; ++t) alike.observe(1, 0);
    EXPECT_NEAR(-alike.log_value(), regret(50, cells), 1e-9);
  }
}

// Protects: "the smallest bias that this run could have seen" is no empty claim. Draws biased by it are refused in at
// least 99 % of simulated runs, in the direction that is hardest to see; biased by half of it, hardly ever.
TEST(Sensitivity, WhatIsSaidToShowShowsAndHalfOfItDoesNot) {
  const Level level{1e-6, 500};
  constexpr int runs = 300;
  struct Setting {
    std::size_t cells;
    std::int64_t contexts, draws;
    double slack;
  };
  for (const Setting& s :
       {Setting{2, 1, 4000, 0}, Setting{8, 1, 8000, 1e-4}, Setting{64, 1, 20000, 0}, Setting{8, 8, 20000, 0}}) {
    const double tau = smallest_shown(s.draws, std::int64_t(s.cells), s.contexts, s.slack, level.log_threshold());
    ASSERT_LT(tau, 0.25);
    const auto shown = [&](double bias) {
      Random random(s.cells + std::uint64_t(s.contexts));
      const std::vector<double> law = biased(s.cells, bias);
      int refuted = 0;
      for (int run = 0; run < runs; ++run) {
        EProcess process(std::int64_t(s.cells), s.contexts);
        for (std::int64_t t = 0; t < s.draws && !level.refutes(process); ++t)
          process.observe(std::int64_t(draw(random, law)), -std::log(double(s.cells)) + s.slack, t % s.contexts);
        refuted += level.refutes(process);
      }
      return refuted / double(runs);
    };
    EXPECT_GE(shown(tau), 0.99) << s.cells << " cells, " << s.contexts << " contexts, tau " << tau;
    EXPECT_LE(shown(tau / 2), 0.2) << s.cells << " cells, " << s.contexts << " contexts, tau " << tau;
    EXPECT_EQ(shown(0), 0);
  }
}

// Protects: a slack is paid for, and no draws show nothing.
TEST(Sensitivity, FallsWithDrawsAndRisesWithSlackAndCells) {
  const double base = smallest_shown(10000, 8, 1, 0, 20);
  EXPECT_LT(smallest_shown(20000, 8, 1, 0, 20), base);
  EXPECT_GT(smallest_shown(10000, 16, 1, 0, 20), base);
  EXPECT_GT(smallest_shown(10000, 8, 4, 0, 20), base);
  EXPECT_GT(smallest_shown(10000, 8, 1, 0, 30), base);
  // However many draws, what the slack covers cannot show.
  EXPECT_GT(smallest_shown(1 << 30, 8, 1, 0.02, 20), 0.1);
  EXPECT_EQ(smallest_shown(0, 8, 1, 0, 20), 1);
}

// Protects: a draw of an impossible cell refuses at once and for good, and a wrong cell is our own error.
TEST(EProcess, IsInfiniteAfterAnImpossibleCell) {
  EProcess process(3);
  process.observe(0, -infinity);
  process.observe(1, -0.1);
  EXPECT_EQ(process.log_largest(), infinity);
  EXPECT_TRUE((Level{1e-300, 1000000}.refutes(process)));
  EXPECT_THROW(process.observe(3, 0), std::out_of_range);
  EXPECT_THROW(process.observe(-1, 0), std::out_of_range);
  EXPECT_THROW(process.observe(0, 0, 1), std::out_of_range);
}

// Protects: the level of the whole run: shares of the processes and of the draws below least_probability add up to it.
TEST(Level, SharesAddUp) {
  const Level level{1e-6, 99};
  EXPECT_NEAR(100 * std::exp(-level.log_threshold()), 1e-6, 1e-15);
}

}  // namespace
}  // namespace fractus
