// Companion against correct orders of evaluation and 50 digits: the tolerance of cross entropy must never refuse a
// correct kernel, and must still refuse the wrong ones at the end of this file.
#include <fmt/format.h>

#include <array>
#include <iostream>

#include "tests/oracle/cross_entropy_draws.h"
#include "tests/oracle/cross_entropy_float50.h"
#include "tests/oracle/cross_entropy_orders.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::cross_entropy {
namespace {

struct Worst {
  double ratio = 0;
  std::string order = "none";
};

// What a run of draws saw, for the last line of its test.
struct Tally {
  double elements = 0, without_bound = 0;
  std::array<Worst, 3> worst{};

  std::string text() const {
    std::string line =
        fmt::format("{:.0f} elements, {:.0f} without a bound; worst error/tolerance:", elements, without_bound);
    const char* names[] = {"loss", "dh", "dW"};
    for (std::size_t i = 0; i < 3; ++i)
      line += fmt::format(" {} {:.3f} ({})", names[i], worst[i].ratio, worst[i].order);
    return line + "\n";
  }
};

std::size_t tensor_count(const Expected& expected) { return expected.gradients.empty() ? 1 : 3; }
const ExpectedTensor& tensor(const Expected& expected, std::size_t i) {
  return i == 0 ? expected.outputs[0] : *expected.gradients[i - 1];
}
std::vector<double> values(const Answer& answer, std::size_t i) {
  return i == 0 ? std::vector<double>{answer.loss} : i == 1 ? answer.dh : answer.dW;
}

// The first element that is not certified equal; empty where there is none. An element without a bound says nothing.
std::string refusal(const Expected& expected, const Order& order, const Answer& answer, Tally& tally) {
  for (std::size_t i = 0; i < tensor_count(expected); ++i) {
    const ExpectedTensor& wanted = tensor(expected, i);
    const std::vector<double> got = values(answer, i);
    for (std::size_t e = 0; e < got.size(); ++e) {
      ++tally.elements;
      if (!std::isfinite(wanted.tolerance[e])) {
        ++tally.without_bound;
        continue;
      }
      const Judgement judgement = judge(wanted, expected.radius_per_tolerance, e, got[e]);
      if (judgement.ratio > tally.worst[i].ratio) tally.worst[i] = {judgement.ratio, order.name};
      if (judgement.verdict != Verdict::equal)
        return fmt::format("{}: {}[{}]: got {}, value {}, tolerance {}, ratio {}", order.name, wanted.name, e, got[e],
                           wanted.value[e], wanted.tolerance[e], judgement.ratio);
    }
  }
  return "";
}

std::string every_order_is_equal(const Draw& draw, DType dtype, Tally& tally) {
  const Question question = made(draw, dtype);
  const Expected expected = cross_entropy::expected(question);
  for (const Order& order : orders())
    if (const std::string refused = refusal(expected, order, evaluated(question, order), tally); !refused.empty())
      return refused;
  return "";
}

void expect_mostly_bounded(const Tally& tally) {
  std::cout << tally.text();
  EXPECT_LT(tally.without_bound, tally.elements / 50);
}

// Protects: no false alarm in float32, whatever the order of evaluation and however the logits lie.
TEST(CrossEntropyCompanion, BoundsEveryCorrectOrderInFloat32) {
  Tally tally;
  EXPECT_TRUE(holds(4000, [&](const Draw& draw) { return every_order_is_equal(draw, DType::float32, tally); }));
  expect_mostly_bounded(tally);
}

// Protects: the same where sums have many terms and the bound has room to be wrong.
TEST(CrossEntropyCompanion, BoundsEveryCorrectOrderOfLongSums) {
  Tally tally;
  EXPECT_TRUE(holds(30, [&] { return every_order_is_equal(*draws(20, 40, 1500), DType::float32, tally); }));
  expect_mostly_bounded(tally);
}

// Protects: the same for float64 candidates, whose values come in two parts.
TEST(CrossEntropyCompanion, BoundsEveryCorrectOrderInFloat64) {
  Tally tally;
  EXPECT_TRUE(holds(1500, [&](const Draw& draw) { return every_order_is_equal(draw, DType::float64, tally); }));
  expect_mostly_bounded(tally);
}

testing::AssertionResult values_within_radius(int count, DType dtype) {
  double worst = 0;
  auto result = holds(count, [&] {
    const Draw draw = *draws(4, 5, 30);
    const Question question = made(draw, dtype);
    const Distance distance = distance_to_truth(question, expected(question));
    worst = std::max(worst, distance.over_radius);
    return distance.where.empty() ? std::string()
                                  : fmt::format("fill {}: {}", static_cast<int>(draw.fill), distance.where);
  });
  std::cout << fmt::format("worst |value - truth| / radius {:.3f}\n", worst);
  return result;
}

// Protects: the value that candidates are measured from is known as well as `judge` assumes.
TEST(CrossEntropyCompanion, ValueIsWithinItsRadiusInFloat32) { EXPECT_TRUE(values_within_radius(400, DType::float32)); }
TEST(CrossEntropyCompanion, ValueIsWithinItsRadiusInFloat64) { EXPECT_TRUE(values_within_radius(400, DType::float64)); }

// The largest ratio of each tensor.
std::array<double, 3> ratios(const Question& question, Order order, Fault fault) {
  order.fault = fault;
  const Expected expected = cross_entropy::expected(question);
  const Answer answer = evaluated(question, order);
  std::array<double, 3> worst{};
  for (std::size_t i = 0; i < tensor_count(expected); ++i) {
    const std::vector<double> got = values(answer, i);
    for (std::size_t e = 0; e < got.size(); ++e)
      worst[i] = std::max(worst[i], judge(tensor(expected, i), expected.radius_per_tolerance, e, got[e]).ratio);
  }
  return worst;
}

Question ordinary(int N = 6, int d = 16, int V = 200) { return made({N, d, V, Fill::ordinary, 5}, DType::float32); }

// Negative controls: each fault leaves the tolerance in every tensor that it touches, and without it the same order
// stays inside.
TEST(CrossEntropyCompanion, RefusesFaults) {
  const Order& order = orders().front();
  const auto none = ratios(ordinary(), order, Fault::none);
  for (double ratio : none) EXPECT_LT(ratio, 1);
  for (Fault fault : {Fault::bf16, Fault::tail, Fault::temperature}) {
    const auto found = ratios(ordinary(), order, fault);
    std::cout << fmt::format("fault {}: loss {:.3g} dh {:.3g} dW {:.3g}\n", static_cast<int>(fault), found[0], found[1],
                             found[2]);
    for (double ratio : found) EXPECT_GT(ratio, 1) << static_cast<int>(fault);
  }
  Order chunks = order;
  chunks.chunk = 4;
  const auto found = ratios(ordinary(), chunks, Fault::last_one_hot);
  EXPECT_LT(found[0], 1);
  EXPECT_GT(found[1], 1);
  EXPECT_GT(found[2], 1);
}

// Logits that no order rounds, around `offset`: multiples of 1/8. Few of them, since 50 in any order may lose as much
// as the shift does.
Question exact_logits(double offset) {
  constexpr std::size_t V = 6;
  Question question = made({4, 3, V, Fill::exact, 9}, DType::float32);
  Values values(1);
  fill_with(*question.inputs[1], [&] { return std::trunc(values.uniform(-8, 9)) / 8; });
  for (std::size_t i = 0; i < V; ++i) question.inputs[1]->values[3 * i] += offset;
  set_first(*question.inputs[0], 1);
  return question;
}

// Negative control: the shift is part of the definition. Logits of 3000 that are exact leave no room for the roundings
// of log sum exp + a - x_target, nor for a sum of exp without the shift.
TEST(CrossEntropyCompanion, RefusesALostShift) {
  const Order& order = orders().front();
  for (double offset : {3000.0, -3000.0}) {
    EXPECT_LT(ratios(exact_logits(offset), order, Fault::none)[0], 1);
    EXPECT_GT(ratios(exact_logits(offset), order, Fault::unshifted_target)[0], 1);
    EXPECT_EQ(ratios(exact_logits(offset), order, Fault::no_shift)[0], std::numeric_limits<double>::infinity());
  }
  EXPECT_LT(ratios(exact_logits(0), order, Fault::unshifted_target)[0], 1) << "it is the offset that costs";
}

// Protects: a common offset of exact logits moves neither value nor tolerance.
TEST(CrossEntropyCompanion, AnOffsetOfExactLogitsCostsNothing) {
  const Expected at_zero = expected(exact_logits(0)), shifted = expected(exact_logits(3000));
  EXPECT_EQ(at_zero.outputs[0].value, shifted.outputs[0].value);
  EXPECT_EQ(at_zero.outputs[0].tolerance, shifted.outputs[0].tolerance);
  EXPECT_LT(at_zero.outputs[0].tolerance[0], 1e-4);
  EXPECT_EQ(at_zero.gradients[1]->value, shifted.gradients[1]->value);
}

// Protects: a declared depth narrows the tolerance of a long sum, and the orders that keep to it stay inside.
TEST(CrossEntropyCompanion, ADeclaredDepthNarrows) {
  Question question = made({3, 3, 4000, Fill::exact, 9}, DType::float32);
  const double any = expected(question).outputs[0].tolerance[0];
  question.add_depth = 14;  // pairwise: 12 additions
  const Expected declared = expected(question);
  EXPECT_LT(declared.outputs[0].tolerance[0], any / 10);
  Tally tally;
  for (const Order& order : orders())
    if (order.sum == Sum::pairwise && order.softmax == Softmax::two_pass) {
      EXPECT_EQ(refusal(declared, order, evaluated(question, order), tally), "");
    }
  EXPECT_GT(tally.elements, 0);
}

}  // namespace
}  // namespace fractus::oracle::cross_entropy
