// What the oracle says of a call of cross entropy, at its edges and by several threads; and of a sampler's law.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "oracle/sample_tokens.h"
#include "tests/oracle/cross_entropy_draws.h"
#include "tests/oracle/cross_entropy_float50.h"
#include "tests/oracle/cross_entropy_orders.h"

namespace fractus::oracle::cross_entropy {
namespace {

bool same(const ExpectedTensor& x, const ExpectedTensor& y) {
  return x.shape == y.shape && x.value == y.value && x.remainder == y.remainder && x.tolerance == y.tolerance;
}

// Protects: a verdict does not depend on the machine's number of cores. A width as the live one's, and a vocabulary of
// several blocks that is a multiple of nothing.
TEST(CrossEntropyExpected, ThreadsDoNotChangeABit) {
  for (DType dtype : {DType::float32, DType::float64}) {
    Question question = dtype == DType::float32 ? made({16, 1280, 1543, Fill::ordinary, 3}, dtype)
                                                : made({9, 17, 1543, Fill::wide, 3}, dtype);
    const Expected one = expected(question);
    for (int threads : {2, 5}) {
      question.threads = threads;
      const Expected several = expected(question);
      EXPECT_TRUE(same(several.outputs[0], one.outputs[0]));
      for (std::size_t i : {0, 1}) EXPECT_TRUE(same(*several.gradients[i], *one.gradients[i]));
    }
  }
}

// Protects: shapes, names and order of what is expected; gradients where a cotangent was given, and only there.
TEST(CrossEntropyExpected, HasTheContractsTensors) {
  Question question = made({3, 4, 5, Fill::ordinary, 3}, DType::float64);
  const Expected both = expected(question);
  EXPECT_EQ(both.outputs.size(), 1U);
  EXPECT_EQ(both.outputs[0].name, "loss");
  EXPECT_EQ(both.outputs[0].shape, Shape{});
  ASSERT_EQ(both.gradients.size(), 3U);
  EXPECT_EQ(both.gradients[0]->shape, (Shape{3, 4}));
  EXPECT_EQ(both.gradients[1]->shape, (Shape{5, 4}));
  EXPECT_EQ(both.gradients[1]->remainder.size(), 20U);
  EXPECT_FALSE(both.gradients[2]);
  question.cotangent.reset();
  EXPECT_TRUE(expected(question).gradients.empty());
  EXPECT_TRUE(same(expected(question).outputs[0], both.outputs[0]));
}

// Protects: a bound exists at the edges that the contract names, and it is one that decides.
TEST(CrossEntropyExpected, HasABoundAtTheEdges) {
  for (DType dtype : {DType::float32, DType::float64})
    for (int fill = 0; fill < fill_count; ++fill)
      for (int N : {1, 5})
        for (int V : {1, 2, 600}) {
          const Expected result = expected(made({N, 7, V, static_cast<Fill>(fill), 3}, dtype));
          EXPECT_LT(result.outputs[0].tolerance[0], 1e-2 * (1 + result.outputs[0].value[0]))
              << fill << " " << N << " " << V;
          for (std::size_t i : {0, 1})
            for (double tolerance : result.gradients[i]->tolerance) EXPECT_TRUE(std::isfinite(tolerance)) << fill;
        }
}

// Protects: of one token the loss is 0 and moves with nothing.
TEST(CrossEntropyExpected, OneTokenHasNoLoss) {
  const Expected result = expected(made({3, 2, 1, Fill::ordinary, 3}, DType::float32));
  EXPECT_EQ(result.outputs[0].value[0], 0);
  EXPECT_LT(result.outputs[0].tolerance[0], 1e-5);
  for (std::size_t i : {0, 1})
    for (double value : result.gradients[i]->value) EXPECT_EQ(value, 0);
}

// Protects: a masked token takes no part: its gradient is 0, and the others' are as tight as without it.
TEST(CrossEntropyExpected, AMaskedTokenTakesNoPart) {
  Question question = made({2, 3, 4, Fill::ordinary, 3}, DType::float32);
  set_first(*question.inputs[0], 1);
  question.inputs[2]->values = {0, 1};
  const auto with = [&](double mask) {
    Question masked = question;
    masked.inputs[1]->values[9] = mask;
    return expected(masked);
  };
  const Expected once = with(-1e4), twice = with(-1e30);
  EXPECT_EQ(once.outputs[0].value, twice.outputs[0].value);
  EXPECT_NEAR(once.outputs[0].tolerance[0] / twice.outputs[0].tolerance[0], 1, 1e-6);
  for (std::size_t k = 9; k < 12; ++k) {
    EXPECT_EQ(twice.gradients[1]->value[k], 0);
    EXPECT_LT(twice.gradients[1]->tolerance[k], 1e-12);
  }
}

// W's rows in another order, and targets that follow them.
Question permuted(Question question, const std::vector<std::size_t>& place) {
  const Array W = *question.inputs[1];
  const auto d = static_cast<std::size_t>(W.shape[1]);
  for (std::size_t i = 0; i < place.size(); ++i)
    std::copy_n(W.values.begin() + static_cast<std::ptrdiff_t>(i * d), d,
                question.inputs[1]->values.begin() + static_cast<std::ptrdiff_t>(place[i] * d));
  for (double& target : question.inputs[2]->values)
    target = static_cast<double>(place[static_cast<std::size_t>(target)]);
  return question;
}

// Protects: what the definition gives, and what it allows, is the same whatever the order of the vocabulary. So two
// calls of which one is the other's permutation may differ by both tolerances, and a form that differs by more is
// outside of one of them (docs/loss-and-sampler.md). Tolerances come from sums of nonnegative terms in their own type,
// which an order moves by less than their roundings.
TEST(CrossEntropyExpected, TheVocabularyHasNoOrder) {
  for (DType dtype : {DType::float32, DType::float64})
    for (int fill = 0; fill < fill_count; ++fill) {
      const std::size_t V = 700, d = 7;
      const Question question = made({5, d, V, static_cast<Fill>(fill), 3}, dtype);
      std::vector<std::size_t> place(V);
      std::iota(place.begin(), place.end(), 0);
      std::shuffle(place.begin(), place.end(), std::mt19937_64(1));
      const Expected one = expected(question), other = expected(permuted(question, place));
      const double epsilon = dtype == DType::float32 ? 0x1p-23 : 0x1p-52, slack = 4 * (V + 4) * epsilon;
      const auto compare = [&](const ExpectedTensor& x, std::size_t i, const ExpectedTensor& y, std::size_t j) {
        const auto rest = [](const ExpectedTensor& t, std::size_t at) {
          return t.remainder.empty() ? 0.0 : t.remainder[at];
        };
        const double radius = (x.tolerance[i] + y.tolerance[j]) * one.radius_per_tolerance;
        EXPECT_LE(std::fabs(x.value[i] - y.value[j] + (rest(x, i) - rest(y, j))), radius) << x.name << i << " " << fill;
        EXPECT_LE(std::fabs(x.tolerance[i] - y.tolerance[j]), slack * x.tolerance[i]) << x.name << i << " " << fill;
      };
      compare(one.outputs[0], 0, other.outputs[0], 0);
      for (std::size_t i = 0; i < 5 * d; ++i) compare(*one.gradients[0], i, *other.gradients[0], i);
      for (std::size_t i = 0; i < V; ++i)
        for (std::size_t k = 0; k < d; ++k)
          compare(*one.gradients[1], i * d + k, *other.gradients[1], place[i] * d + k);
    }
}

// Protects: a logit's gradient sums to 0, so dW does over the vocabulary, to what the oracle's own values may miss. The
// sum of a form's dW may then miss 0 by the sum of its tolerances, and one that misses it by more is outside of one.
TEST(CrossEntropyExpected, GradientsOfTheVocabularySumToZero) {
  for (DType dtype : {DType::float32, DType::float64})
    for (int fill = 0; fill < fill_count; ++fill) {
      const std::size_t V = 700, d = 7;
      const Expected result = expected(made({5, d, V, static_cast<Fill>(fill), 3}, dtype));
      const ExpectedTensor& dW = *result.gradients[1];
      for (std::size_t k = 0; k < d; ++k) {
        long double sum = 0, magnitude = 0, radius = 0;
        for (std::size_t j = k; j < V * d; j += d) {
          sum += static_cast<long double>(dW.value[j]) + (dW.remainder.empty() ? 0 : dW.remainder[j]);
          magnitude += std::fabs(dW.value[j]);
          radius += dW.tolerance[j] * result.radius_per_tolerance;
        }
        EXPECT_LE(std::fabs(sum), radius + V * magnitude * 0x1p-63L) << fill << " " << k;
      }
    }
}

// Protects: a row of ever rising logits that errs to one side at every addition nearly reaches the bound, so that it
// could not be made much tighter; half of it would refuse this correct kernel.
TEST(CrossEntropyExpected, AChainOfRoundingsReachesTheBound) {
  Question question = made({1, 1, 12000, Fill::equal, 3}, DType::float32);
  question.inputs[0]->values = {1};
  std::fill(question.inputs[1]->values.begin(), question.inputs[1]->values.end(),
            -16.625);  // e^-16.625 is 1.01 * 2^-24
  question.inputs[1]->values[0] = 0;
  question.inputs[2]->values = {0};
  const Expected result = expected(question);
  const Answer answer = evaluated(question, orders().front());
  const Judgement judgement = judge(result.outputs[0], result.radius_per_tolerance, 0, answer.loss);
  EXPECT_EQ(judgement.verdict, Verdict::equal);
  EXPECT_GT(judgement.ratio, 0.9);
}

// Protects: what is no call is said, and not computed with.
TEST(CrossEntropyExpected, RefusesWhatIsNoCall) {
  const Question good = made({3, 4, 5, Fill::ordinary, 3}, DType::float32);
  for (double target : {-1.0, 5.0, -100.0}) {
    Question bad = good;
    bad.inputs[2]->values[1] = target;
    EXPECT_THROW(expected(bad), std::invalid_argument);
  }
  Question bad = good;
  bad.inputs[0]->shape = {4, 3};
  EXPECT_THROW(expected(bad), std::invalid_argument);
  bad = good;
  bad.inputs[0] = zeros("h", DType::float32, {0, 4}), bad.inputs[2] = zeros("targets", DType::int64, {0});
  EXPECT_THROW(expected(bad), std::invalid_argument);
}

// Protects: the law that draws are tested against, and that a correct kernel's softmax lies within the slack.
TEST(SampleTokensLaw, IsTheSoftmax) {
  for (DType dtype : {DType::float32, DType::float64})
    for (int fill = 0; fill < fill_count; ++fill) {
      const Question question = made({3, 5, 40, static_cast<Fill>(fill), 3}, dtype);
      const Array &h = *question.inputs[0], &W = *question.inputs[1];
      const double temperature = 0.9;
      const auto law = sample_tokens::law(dtype, h, W, temperature);
      const std::vector<double> truth = true_law(h, W, temperature);
      const double unit = unit_roundoff(dtype);
      for (std::size_t n = 0; n < 3; ++n) {
        ASSERT_TRUE(std::isfinite(law.slack[n])) << fill;
        EXPECT_GT(law.slack[n], 6 * unit);
        double sum = 0;
        for (std::size_t i = 40 * n; i < 40 * (n + 1); ++i) {
          sum += law.probability[i];
          if (truth[i] < least_probability) continue;
          EXPECT_LE(std::fabs(std::log(law.probability[i] / truth[i])), law.slack[n] * 0x1p-8 + 0x1p-50) << fill;
        }
        EXPECT_NEAR(sum, 1, 1e-6);
      }
    }
}

// p of one kernel in float32: h divided by the temperature or the logits, the maximum taken before or after.
std::vector<double> kernel_law(const Array& h, const Array& W, float temperature, int form) {
  const auto N = static_cast<std::size_t>(h.shape[0]), d = static_cast<std::size_t>(h.shape[1]),
             V = static_cast<std::size_t>(W.shape[0]);
  std::vector<double> law;
  for (std::size_t n = 0; n < N; ++n) {
    std::vector<float> x(V);
    for (std::size_t i = 0; i < V; ++i)
      for (std::size_t k = 0; k < d; ++k) {
        const auto a = static_cast<float>(h.values[n * d + k]), b = static_cast<float>(W.values[i * d + k]);
        x[i] += form == 0 ? (a / temperature) * b : a * b;
      }
    const float a = *std::max_element(x.begin(), x.end());
    float s = 0;
    for (float& value : x) {
      value = form == 0   ? value - a
              : form == 1 ? value / temperature - a / temperature
                          : (value - a) * (1 / temperature);
      s += std::exp(value);
    }
    for (float value : x) law.push_back(form == 2 ? std::exp(value - std::log(s)) : std::exp(value) / s);
  }
  return law;
}

// Protects: the slack covers correct kernels, and not one that leaves the temperature out.
TEST(SampleTokensLaw, SlackCoversCorrectKernels) {
  double worst = 0;
  for (int fill = 0; fill < fill_count; ++fill)
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const Question question = made({2, 6, 50, static_cast<Fill>(fill), seed}, DType::float32);
      const Array &h = *question.inputs[0], &W = *question.inputs[1];
      const auto law = sample_tokens::law(DType::float32, h, W, 0.9);
      for (int form : {0, 1, 2}) {
        const std::vector<double> got = kernel_law(h, W, 0.9F, form);
        for (std::size_t i = 0; i < got.size(); ++i)
          if (law.probability[i] >= least_probability)
            worst = std::max(worst, std::fabs(std::log(got[i] / law.probability[i])) / law.slack[i / 50]);
      }
    }
  std::cout << "worst log ratio over slack " << worst << "\n";
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0.01);

  const Question question = made({2, 6, 50, Fill::ordinary, 3}, DType::float32);
  const auto law = sample_tokens::law(DType::float32, *question.inputs[0], *question.inputs[1], 0.9);
  const auto wrong = sample_tokens::law(DType::float32, *question.inputs[0], *question.inputs[1], 1);
  EXPECT_GT(std::fabs(std::log(wrong.probability[0] / law.probability[0])), 10 * law.slack[0]);
}

TEST(SampleTokensLaw, RefusesWhatIsNoCall) {
  const Question question = made({2, 3, 4, Fill::ordinary, 3}, DType::float32);
  for (double temperature : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(sample_tokens::law(DType::float32, *question.inputs[0], *question.inputs[1], temperature),
                 std::invalid_argument);
  EXPECT_THROW(sample_tokens::law(DType::float32, *question.inputs[0], zeros("W", DType::float32, {4, 2}), 1),
               std::invalid_argument);
}

}  // namespace
}  // namespace fractus::oracle::cross_entropy
