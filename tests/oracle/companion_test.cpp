// Companion against 50 digits and against 23 correct orders of evaluation: the tolerance that the tool takes from the
// definition must never refuse a correct kernel, and must still refuse the wrong ones at the end of this file.
#include <fmt/format.h>

#include <bit>

#include "tests/oracle/draws.h"
#include "tests/oracle/float50.h"
#include "tests/oracle/orders.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::linear_attention {
namespace {

const ExpectedTensor& tensor(const Expected& expected, std::size_t i) {
  return i < 3 ? expected.outputs[i] : *expected.gradients[i - 3];
}
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
  double elements = 0, without_bound = 0, other_branch = 0;
  std::array<double, 8> worst{};

  std::string text() const {
    return fmt::format(
        "{} draws, {} out of range, {} with rows in doubt, {:.0f} elements, {:.0f} without a bound, {:.0f} "
        "by the other branch than y\nworst error/tolerance:"
        " y {:.3f} S {:.3f} z {:.3f} dq {:.3f} dk {:.3f} dv {:.3f} dS0 {:.3f} dz0 {:.3f}\n",
        draws, out_of_range, in_doubt, elements, without_bound, other_branch, worst[0], worst[1], worst[2], worst[3],
        worst[4], worst[5], worst[6], worst[7]);
  }
};

// The first element that is not certified equal; empty where there is none. An element without a bound says nothing.
// Gradients that are not as y shows may be as `either` says.
template <class F>
std::string refusal(const Expected& expected, const Expected& either, const Answer<F>& answer, Tally& tally) {
  for (std::size_t i = 0; i < tensor_count(expected); ++i)
    for (std::size_t e = 0; e < answer[i].size(); ++e) {
      const ExpectedTensor& wanted = tensor(expected, i);
      const ExpectedTensor& wider = i < 3 ? wanted : tensor(either, i);
      ++tally.elements;
      const Verdict given_y = judge(wanted, expected.radius_per_tolerance, e, answer[i][e]).verdict;
      if (given_y != Verdict::equal && !std::isfinite(wider.tolerance[e])) {
        ++tally.without_bound;
        continue;
      }
      const Judgement judgement = judge(wanted, wider, expected.radius_per_tolerance, e, answer[i][e]);
      if (given_y != Verdict::equal && judgement.verdict == Verdict::equal) ++tally.other_branch;
      tally.worst[i] = std::max(tally.worst[i], judgement.ratio);
      if (judgement.verdict != Verdict::equal)
        return fmt::format("{}[{}]: got {}, value {}, tolerance {}, ratio {}", wanted.name, e, answer[i][e],
                           wanted.value[e], wanted.tolerance[e], judgement.ratio);
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
  if (expected.choices_in_doubt > 0) ++tally.in_doubt;
  const Problem<F> problem = problem_of<F>(question);
  for (const Order& order : orders()) {
    const Answer<F> answer = evaluated(problem, order);
    const Expected given_y = given_answer(question, expected, answer);
    const std::string refused = refusal(given_y, order.anew == Anew::nothing ? given_y : expected, answer, tally);
    if (!refused.empty()) return fmt::format("{}: {}", order.name, refused);
  }
  return "";
}

void expect_mostly_used(const Tally& tally) {
  std::cout << tally.text();
  EXPECT_LT(tally.out_of_range, tally.draws / 5);
  EXPECT_LT(tally.in_doubt, tally.draws / 3);  // an eighth of the draws aims at the cut
  EXPECT_LT(tally.without_bound, tally.elements / 5);
}

// Protects: no false alarm in float32, whatever the order of evaluation.
TEST(Companion, BoundsEveryCorrectOrderInFloat32) {
  Tally tally;
  EXPECT_TRUE(holds(8000, [&](const Draw& draw) { return every_order_is_equal<float>(draw, DType::float32, tally); }));
  expect_mostly_used(tally);
  EXPECT_GT(tally.other_branch, 1000);
}

// Protects: the same at lengths where sums have several blocks and the bound has room to be wrong.
TEST(Companion, BoundsEveryCorrectOrderOfLongSequences) {
  Tally tally;
  EXPECT_TRUE(holds(200, [&] { return every_order_is_equal<float>(*draws(70, 16), DType::float32, tally); }));
  expect_mostly_used(tally);
}

// Protects: the same for float64 candidates, whose values come in two parts.
TEST(Companion, BoundsEveryCorrectOrderInFloat64) {
  Tally tally;
  EXPECT_TRUE(holds(1000, [&](const Draw& draw) { return every_order_is_equal<double>(draw, DType::float64, tally); }));
  expect_mostly_used(tally);
}

// Draws with a row in doubt are left out: 50 digits know one branch only.
testing::AssertionResult values_within_radius(int count, DType dtype) {
  double worst = 0;
  int measured = 0;
  auto result = holds(count, [&](const Draw& draw) -> std::string {
    const Question question = made(draw, dtype);
    const Expected expected = linear_attention::expected(question);
    if (expected.choices_in_doubt > 0) return "";
    const Distance distance = distance_to_truth(question, expected);
    worst = std::max(worst, distance.over_radius);
    ++measured;
    return distance.where;
  });
  std::cout << fmt::format("{} calls measured, worst |value - truth| / radius {:.3f}\n", measured, worst);
  return result;
}

// Protects: the value that candidates are measured from is known as well as `judge` assumes.
TEST(Companion, ValueIsWithinItsRadiusInFloat32) { EXPECT_TRUE(values_within_radius(4000, DType::float32)); }
TEST(Companion, ValueIsWithinItsRadiusInFloat64) { EXPECT_TRUE(values_within_radius(1000, DType::float64)); }

// The largest ratio over all elements of a tensor.
template <class F>
double ratio(const Expected& expected, const Answer<F>& answer, std::size_t i) {
  double worst = 0;
  for (std::size_t e = 0; e < answer[i].size(); ++e)
    worst = std::max(worst, judge(tensor(expected, i), expected.radius_per_tolerance, e, answer[i][e]).ratio);
  return worst;
}

// 1 and small terms that each move a sum near 1 up (or, where they are a little smaller, down) by almost half an ulp
// more (less) than they are: every addition of a sequential sum errs by a whole roundoff to the same side.
constexpr double up = 0x1p-24 * (1 + 0x1p-10), down = 0x1p-24 * (1 - 0x1p-10);

// Negative control for the tolerance itself: z reaches 0.95 of its bound, so that a bound with half the roundings
// counted would refuse this correct kernel. The bound cannot be made tighter.
TEST(Companion, AChainOfRoundingsReachesTheBound) {
  Question question = made({200, 1, Fill::features, 1, false, true, 0}, DType::float32);
  for (double& k : question.inputs[1]->values) k = up;
  question.inputs[4]->values = {1};
  const Expected expected = linear_attention::expected(question);
  const Answer<float> answer = evaluated(problem_of<float>(question), orders().front());
  EXPECT_GT(ratio(expected, answer, 2), 0.95);
  EXPECT_EQ(judge(expected.outputs[2], expected.radius_per_tolerance, 0, answer[2][0]).verdict, Verdict::equal);

  ExpectedTensor half_counted = expected.outputs[2];
  half_counted.tolerance[0] /= 2;
  EXPECT_EQ(judge(half_counted, expected.radius_per_tolerance, 0, answer[2][0]).verdict, Verdict::different);
}

// One token whose numerator is summed up in one accumulator, first the score and then the state (a matrix product with
// the state's as its initial value), and whose den errs to the other side.
Question one_accumulator(int D) {
  Question question = made({1, D, Fill::features, 1, true, true, 0}, DType::float32);
  const auto set = [&](std::size_t i, double first, double others) {
    std::fill(question.inputs[i]->values.begin(), question.inputs[i]->values.end(), others);
    question.inputs[i]->values[0] = first;
  };
  set(0, 1, 1), set(1, 1, up), set(2, 1, 1), set(3, up, up), set(4, 0x1p10, 0x1p10 * down);
  return question;
}

// Protects: such a kernel is correct and is not refused, at any width.
TEST(Companion, BoundsOneAccumulatorForScoresAndState) {
  for (int D : {1, 2, 4, 8, 16, 64, 128, 200}) {
    const Question question = one_accumulator(D);
    for (Sum sum : {Sum::sequential, Sum::fused}) {
      const Answer<float> answer = evaluated(problem_of<float>(question),
                                             {.name = "one accumulator", .by = By::scores, .sum = sum, .flat = true});
      EXPECT_LT(ratio(linear_attention::expected(question), answer, 0), 1) << "D " << D;
    }
  }
}

float to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000U);
}

// How many of 100 ordinary calls refuse this way of computing them.
template <class F, class Compute>
int refused_of_100(DType dtype, Compute compute) {
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Question question = made({8, 4, seed % 2 == 0 ? Fill::features : Fill::mixed_signs, seed}, dtype);
    const Expected expected = linear_attention::expected(question);
    Tally tally;
    const Answer<F> answer = compute(problem_of<F>(question));
    const Expected given_y = given_answer(question, expected, answer);
    refused += !refusal(given_y, given_y, answer, tally).empty();
  }
  return refused;
}

// Negative controls: faults that a tolerance like 1e-3 lets pass are refused in every ordinary call.
TEST(Companion, RefusesACarryRoundedToBfloat16) {
  const Order pieces{.name = "in pieces of 4", .piece = 4};
  EXPECT_EQ(
      refused_of_100<float>(DType::float32,
                            [&](const Problem<float>& p) { return evaluated<float>(p, pieces, 1e-20F, to_bfloat16); }),
      100);
  EXPECT_EQ(refused_of_100<float>(DType::float32, [&](const Problem<float>& p) { return evaluated(p, pieces); }), 0);
}

TEST(Companion, RefusesAnEpsilonThatIsNotTheContracts) {
  EXPECT_EQ(
      refused_of_100<double>(DType::float64, [](const Problem<double>& p) { return evaluated(p, orders()[0], 1e-6); }),
      100);
  EXPECT_EQ(
      refused_of_100<double>(DType::float64, [](const Problem<double>& p) { return evaluated(p, orders()[0], 1e-20); }),
      0);
}

TEST(Companion, RefusesADroppedTerm) {
  EXPECT_EQ(refused_of_100<float>(DType::float32,
                                  [](Problem<float> p) {
                                    p.k[5] = 0;  // of 32 products k v one row's
                                    return evaluated(p, orders()[0]);
                                  }),
            100);
  EXPECT_GE(refused_of_100<float>(DType::float32,
                                  [](const Problem<float>& p) {
                                    Answer<float> answer = evaluated(p, orders()[0]);
                                    for (std::size_t i = 0; i < p.D; ++i)
                                      answer[4][i] -= 1e-4F * answer[7][i];  // a sliver of dden's part of dk
                                    return answer;
                                  }),
            80);
}

}  // namespace
}  // namespace fractus::oracle::linear_attention
