// Companion against 50 digits and against 20 correct orders of evaluation: the tolerance that the tool takes from the
// definition must never refuse a correct kernel, and must still refuse the wrong ones at the end of this file.
#include <fmt/format.h>

#include "tests/oracle/draws.h"
#include "tests/oracle/float50.h"
#include "tests/oracle/orders.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::linear_attention {
namespace {

const ExpectedTensor& tensor(const Expected& expected, std::size_t i) { return i < 3 ? expected.outputs[i] : *expected.gradients[i - 3]; }
std::size_t tensor_count(const Expected& expected) { return 3 + expected.gradients.size(); }

// Terms above 2^70 in a result can stand for intermediates above 2^100, near float32's end: the domain is where every
// defined quantity is finite, and these draws may lie outside. A tolerance is at least one roundoff of the terms.
bool may_overflow(const Expected& expected) {
  if (expected.dtype == DType::float64) return false;
  for (std::size_t i = 0; i < tensor_count(expected); ++i)
    for (double tolerance : tensor(expected, i).tolerance)
      if (std::isfinite(tolerance) && tolerance > 0x1p46) return true;
  return false;
}

// What a run of draws saw, for the last line of its test.
struct Tally {
  int draws = 0, out_of_range = 0, in_doubt = 0;
  double elements = 0, without_bound = 0;
  std::array<double, 8> worst{};

  std::string text() const {
    return fmt::format("{} draws, {} out of range, {} with rows in doubt, {:.0f} elements, {:.0f} without a bound\nworst error/tolerance:"
                       " y {:.3f} S {:.3f} z {:.3f} dq {:.3f} dk {:.3f} dv {:.3f} dS0 {:.3f} dz0 {:.3f}\n",
                       draws, out_of_range, in_doubt, elements, without_bound, worst[0], worst[1], worst[2], worst[3], worst[4], worst[5], worst[6], worst[7]);
  }
};

// The first element that is not certified equal; empty where there is none. An element without a bound says nothing.
template <class F>
std::string refusal(const Expected& expected, const Answer<F>& answer, Tally& tally) {
  for (std::size_t i = 0; i < tensor_count(expected); ++i)
    for (std::size_t e = 0; e < answer[i].size(); ++e) {
      const ExpectedTensor& wanted = tensor(expected, i);
      ++tally.elements;
      if (!std::isfinite(wanted.tolerance[e])) {
        ++tally.without_bound;
        continue;
      }
      const Judgement judgement = judge(wanted, expected.radius_per_tolerance, e, answer[i][e]);
      tally.worst[i] = std::max(tally.worst[i], judgement.ratio);
      if (judgement.verdict != Verdict::equal)
        return fmt::format("{}[{}]: got {}, value {}, tolerance {}, ratio {}", wanted.name, e, answer[i][e], wanted.value[e], wanted.tolerance[e], judgement.ratio);
    }
  return "";
}

// A row in doubt may go either way; the definition is then asked again, given the way that this order took.
template <class F>
Expected given_answer(Question question, const Expected& expected, const Answer<F>& answer) {
  if (expected.choices_in_doubt == 0) return expected;
  const Array y{"y", question.dtype, question.inputs[0]->shape, {answer[0].begin(), answer[0].end()}};
  question.answered_y = &y;
  return linear_attention::expected(question);
}

template <class F>
std::string every_order_is_equal(const Draw& draw, DType dtype, Tally& tally) {
  const Question question = made(draw, dtype);
  const Expected expected = linear_attention::expected(question);
  ++tally.draws;
  if (may_overflow(expected)) {
    ++tally.out_of_range;
    return "";
  }
  if (expected.choices_in_doubt > 0) {
    ++tally.in_doubt;
  } else {
    const Distance distance = distance_to_truth(question, expected);
    if (!distance.where.empty()) return "outside its radius: " + distance.where;
  }
  const Problem<F> problem = problem_of<F>(question);
  for (const Order& order : orders()) {
    const Answer<F> answer = evaluated(problem, order);
    const std::string refused = refusal(given_answer(question, expected, answer), answer, tally);
    if (!refused.empty()) return fmt::format("{}: {}", order.name, refused);
  }
  return "";
}

void expect_mostly_used(const Tally& tally) {
  std::cout << tally.text();
  EXPECT_LT(tally.out_of_range, tally.draws / 5);
  EXPECT_LT(tally.in_doubt, tally.draws / 5);
  EXPECT_LT(tally.without_bound, tally.elements / 20);
}

// Protects: no false alarm in float32, whatever the order of evaluation, and a value that is within its own radius.
TEST(Companion, BoundsEveryCorrectOrderInFloat32) {
  Tally tally;
  EXPECT_TRUE(holds(4000, [&](const Draw& draw) { return every_order_is_equal<float>(draw, DType::float32, tally); }));
  expect_mostly_used(tally);
}

// Protects: the same at lengths where sums have several blocks and the bound has room to be wrong.
TEST(Companion, BoundsEveryCorrectOrderOfLongSequences) {
  Tally tally;
  EXPECT_TRUE(holds(40, [&] {
    const Draw draw = *draws(70, 16);
    return every_order_is_equal<float>(draw, DType::float32, tally);
  }));
  expect_mostly_used(tally);
}

// Protects: the same for float64 candidates, whose values come from float128 in two parts.
TEST(Companion, BoundsEveryCorrectOrderInFloat64) {
  Tally tally;
  EXPECT_TRUE(holds(400, [&](const Draw& draw) { return every_order_is_equal<double>(draw, DType::float64, tally); }));
  expect_mostly_used(tally);
}

}  // namespace
}  // namespace fractus::oracle::linear_attention
