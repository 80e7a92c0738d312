// What the oracle says of a call, and how an answer is judged by it.
#include <gtest/gtest.h>

#include <limits>

#include "tests/oracle/draws.h"

namespace fractus::oracle::linear_attention {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Verdict verdict(double value, double tolerance, double radius_per_tolerance, double got) {
  return judge({"y", {1}, {value}, {}, {tolerance}}, radius_per_tolerance, 0, got).verdict;
}

// Protects: the three verdicts and the width between them, which is the radius on either side of the tolerance.
TEST(Judge, ThreeVerdicts) {
  EXPECT_EQ(verdict(1, 0.5, 0.1, 1.0), Verdict::equal);
  EXPECT_EQ(verdict(1, 0.5, 0.1, 1.4375), Verdict::equal);
  EXPECT_EQ(verdict(1, 0.5, 0.1, 1.5), Verdict::undecidable);
  EXPECT_EQ(verdict(1, 0.5, 0.1, 0.5), Verdict::undecidable);
  EXPECT_EQ(verdict(1, 0.5, 0.1, 1.5625), Verdict::different);
  EXPECT_EQ(verdict(1, 0.5, 0.1, 0.4375), Verdict::different);
  EXPECT_EQ(verdict(1, 0, 0.1, 1.0), Verdict::equal) << "an exact element demands exactness";
  EXPECT_EQ(verdict(1, 0, 0.1, std::nextafter(1.0, 2.0)), Verdict::different);
}

// Protects: NaN and infinity never pass where the definition is finite, and nothing is decided where no bound exists.
TEST(Judge, NotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double got : {nan, infinity, -infinity}) {
    EXPECT_EQ(verdict(1, 0.5, 0, got), Verdict::different);
    EXPECT_EQ(verdict(1, infinity, 0, got), Verdict::undecidable);
  }
  EXPECT_EQ(verdict(1, infinity, 0, 1), Verdict::undecidable);
  EXPECT_EQ(verdict(1, nan, 0, 1), Verdict::undecidable) << "a bound that is no number is none";
}

// Protects: the second part of a value that does not fit a double.
TEST(Judge, CountsTheRemainder) {
  const ExpectedTensor y{"y", {1}, {1.0}, {0x1p-54}, {0x1.8p-54}};
  EXPECT_EQ(judge(y, 0, 0, 1.0).verdict, Verdict::equal);
  EXPECT_DOUBLE_EQ(judge(y, 0, 0, 1.0).ratio, 2.0 / 3);
  EXPECT_EQ(judge(y, 0, 0, 1 - 0x1p-53).verdict, Verdict::different) << "3 units of 2^-54 away, not 2";
}

bool same(const ExpectedTensor& x, const ExpectedTensor& y) {
  return x.shape == y.shape && x.value == y.value && x.remainder == y.remainder && x.tolerance == y.tolerance;
}

bool same(const Expected& x, const Expected& y) {
  if (x.choices_in_doubt != y.choices_in_doubt || x.shared_edge != y.shared_edge ||
      x.gradients.size() != y.gradients.size())
    return false;
  for (std::size_t i = 0; i < 3; ++i)
    if (!same(x.outputs[i], y.outputs[i])) return false;
  for (std::size_t i = 0; i < x.gradients.size(); ++i)
    if (!same(*x.gradients[i], *y.gradients[i])) return false;
  return true;
}

// One token and one dimension with |den| nearest float32's 1e-10, where no interval can settle the cut.
Question astride(double v = 1) {
  Question question = made({1, 1, Fill::features, 1, false, false, 1}, DType::float32);
  question.inputs[0]->values = {0x1p-17};
  question.inputs[1]->values = {rounded(1e-10 * 0x1p17, DType::float32)};
  question.inputs[2]->values = {v};
  question.cotangents[0]->values = {1};
  return question;
}

Expected given(Question question, double y) {
  const Array answered{"y", DType::float32, {1, 1, 1}, {y}};
  question.answered_y = &answered;
  return expected(question);
}

Verdict judged(const Expected& expected, double y) {
  return judge(expected.outputs[0], expected.radius_per_tolerance, 0, y).verdict;
}

// Protects: a row astride the cut is counted, and without an answer both branches pass, and nothing far from them.
TEST(Astride, CoversBothWithoutAnAnswer) {
  const Expected both = expected(astride());
  EXPECT_EQ(both.choices_in_doubt, 1U);
  EXPECT_EQ(judged(both, 0), Verdict::equal);
  EXPECT_EQ(judged(both, 1), Verdict::equal);
  EXPECT_EQ(judged(both, 1.1), Verdict::different);
  EXPECT_EQ(judged(both, -0.1), Verdict::different);
}

// Protects: given the branch taken, everything after it is judged as tightly as anywhere, gradients included.
TEST(Astride, FollowsTheAnswer) {
  const Expected divided = given(astride(), 1), cut = given(astride(), 0);
  EXPECT_EQ(judged(divided, 1), Verdict::equal);
  EXPECT_EQ(judged(divided, 1.00001), Verdict::different);
  EXPECT_EQ(judged(divided, 0), Verdict::different);
  EXPECT_EQ(judged(cut, 0), Verdict::equal);
  EXPECT_EQ(judged(cut, 0x1p-149), Verdict::different);
  EXPECT_NEAR(divided.gradients[2]->value[0], 1, 1e-6);  // dv = q k / den
  for (const auto& gradient : cut.gradients) {
    EXPECT_EQ(gradient->value[0], 0);
    EXPECT_LT(gradient->tolerance[0], 0x1p-140) << "at most products below the normal range";
  }
}

// Protects: a backward that computes den anew may land on the other branch than y, with the y that it kept or with
// another, and nothing far from all of these passes.
TEST(Astride, GradientsMayTakeTheOtherBranch) {
  const Expected either = expected(astride());
  const auto judged = [&](double y, std::size_t gradient, double got) {
    const Expected given_y = given(astride(), y);
    return judge(*given_y.gradients[gradient], *either.gradients[gradient], either.radius_per_tolerance, 0, got)
        .verdict;
  };
  const double q = 0x1p-17, k = rounded(1e-10 * 0x1p17, DType::float32), den = q * k;
  for (double y : {0.0, 1.0}) {
    for (double dv : {0.0, q * k / den}) EXPECT_EQ(judged(y, 2, dv), Verdict::equal) << "dv " << dv;
    // dnum alone, since the y that dden is made of was cut; or both, whose sum is 0
    for (double dq : {0.0, k / den}) EXPECT_EQ(judged(y, 0, dq), Verdict::equal) << "dq " << dq;
    EXPECT_EQ(judged(y, 2, 1.1), Verdict::different);
    EXPECT_EQ(judged(y, 2, -0.1), Verdict::different);
    EXPECT_EQ(judged(y, 0, 1.1 * k / den), Verdict::different);
  }
}

// Protects: a zero numerator is 0 on either branch, so y does not tell which; the gradient dv of both must pass.
TEST(Astride, AZeroThatDoesNotTellCoversBoth) {
  const Expected both = given(astride(0), 0);
  EXPECT_EQ(judged(both, 0), Verdict::equal);
  const ExpectedTensor& dv = *both.gradients[2];
  for (double got : {0.0, 1.0}) EXPECT_EQ(judge(dv, both.radius_per_tolerance, 0, got).verdict, Verdict::equal);
  EXPECT_EQ(judge(dv, both.radius_per_tolerance, 0, 2).verdict, Verdict::different);
}

// Protects: an answer of the wrong size settles nothing and is not read past its end.
TEST(Astride, AnAnswerThatIsTooShortIsNone) {
  Question question = astride();
  const Array empty{"y", DType::float32, {0}, {}};
  question.answered_y = &empty;
  EXPECT_TRUE(same(expected(question), expected(astride())));
}

// Protects: clear of the cut on either side no answer changes what is expected.
TEST(Astride, AnAnswerSettlesNothingElsewhere) {
  for (double factor : {0.5, 2.0}) {
    Question question = astride();
    question.inputs[0]->values[0] *= factor;
    EXPECT_EQ(expected(question).choices_in_doubt, 0U);
    EXPECT_TRUE(same(given(question, 0), given(question, 1)));
    EXPECT_EQ(expected(question).outputs[0].value[0] == 0, factor < 1);
  }
}

// Calls of equal shape as the groups of one.
Question joined(const std::vector<Question>& parts) {
  Question whole = parts.front();
  const auto append = [](std::vector<std::optional<Array>>& to, const std::vector<std::optional<Array>>& from) {
    for (std::size_t i = 0; i < to.size(); ++i)
      if (to[i]) {
        ++to[i]->shape[0];
        to[i]->values.insert(to[i]->values.end(), from[i]->values.begin(), from[i]->values.end());
      }
  };
  for (std::size_t i = 1; i < parts.size(); ++i)
    append(whole.inputs, parts[i].inputs), append(whole.cotangents, parts[i].cotangents);
  return whole;
}

std::vector<Question> parts(DType dtype) {
  std::vector<Question> list;
  for (int fill = 0; fill < fill_count; ++fill) list.push_back(made({5, 3, static_cast<Fill>(fill), 11}, dtype));
  return list;
}

// Protects: each group is judged by its own inputs: the call of 8 groups says what 8 calls say.
TEST(Expected, GroupsAreIndependent) {
  for (DType dtype : {DType::float32, DType::float64}) {
    const Expected whole = expected(joined(parts(dtype)));
    std::size_t g = 0, in_doubt = 0;
    for (const Question& part : parts(dtype)) {
      const Expected alone = expected(part);
      in_doubt += alone.choices_in_doubt;
      for (std::size_t i = 0; i < 8; ++i) {
        const ExpectedTensor &one = i < 3 ? alone.outputs[i] : *alone.gradients[i - 3],
                             &all = i < 3 ? whole.outputs[i] : *whole.gradients[i - 3];
        const auto size = static_cast<std::ptrdiff_t>(one.value.size()), first = static_cast<std::ptrdiff_t>(g) * size;
        EXPECT_TRUE(std::equal(one.value.begin(), one.value.end(), all.value.begin() + first))
            << one.name << " of group " << g;
        EXPECT_TRUE(std::equal(one.tolerance.begin(), one.tolerance.end(), all.tolerance.begin() + first))
            << one.name << " of group " << g;
      }
      ++g;
    }
    EXPECT_EQ(whole.choices_in_doubt, in_doubt);
  }
}

// Protects: a verdict does not depend on the machine's number of cores.
TEST(Expected, ThreadsDoNotChangeABit) {
  for (DType dtype : {DType::float32, DType::float64}) {
    Question question = joined(parts(dtype));
    const Expected one = expected(question);
    for (int threads : {2, 3, 64}) {
      question.threads = threads;
      EXPECT_TRUE(same(expected(question), one));
    }
  }
}

// Protects: an absent S0 or z0 is one of zeros, each for itself.
TEST(Expected, AbsentCarryIsZero) {
  for (const int absent : {1, 2, 3}) {
    Question zero = made({4, 3, Fill::features, 5}, DType::float32), none = zero;
    for (std::size_t i : {3, 4})
      if (absent & (1 << (i - 3)))
        none.inputs[i].reset(), std::fill(zero.inputs[i]->values.begin(), zero.inputs[i]->values.end(), 0.0);
    EXPECT_TRUE(same(expected(none), expected(zero)));
    none.inputs.resize(absent == 3 ? 3 : none.inputs.size());
    EXPECT_TRUE(same(expected(none), expected(zero))) << "left off the list";
  }
}

// Protects: without tokens the carry comes back to the bit, and its cotangent too.
TEST(Expected, NoTokensHandTheCarryOn) {
  const Question question = made({0, 3, Fill::features, 5}, DType::float32);
  const Expected result = expected(question);
  EXPECT_EQ(result.outputs[0].shape, (Shape{1, 0, 3}));
  EXPECT_EQ(result.outputs[1].value, question.inputs[3]->values);
  EXPECT_EQ(result.outputs[2].value, question.inputs[4]->values);
  EXPECT_EQ(result.gradients[3]->value, question.cotangents[1]->values);
  EXPECT_EQ(result.gradients[4]->value, question.cotangents[2]->values);
  for (const ExpectedTensor* tensor :
       {&result.outputs[1], &result.outputs[2], &*result.gradients[3], &*result.gradients[4]})
    for (double tolerance : tensor->tolerance) EXPECT_EQ(tolerance, 0);
}

// Protects: no groups, no elements, no crash.
TEST(Expected, NoGroups) {
  Question question = made({4, 3, Fill::features, 5}, DType::float32);
  for (auto* list : {&question.inputs, &question.cotangents})
    for (auto& array : *list) array->shape[0] = 0, array->values.clear();
  question.threads = 2;
  const Expected result = expected(question);
  EXPECT_EQ(result.outputs[1].shape, (Shape{0, 3, 3}));
  for (const ExpectedTensor& tensor : result.outputs) EXPECT_TRUE(tensor.value.empty());
  for (const auto& tensor : result.gradients) EXPECT_TRUE(tensor->value.empty());
}

// Protects: gradients appear where a cotangent was given, and only there.
TEST(Expected, GradientsOnlyWithCotangents) {
  EXPECT_TRUE(expected(made({2, 2, Fill::features, 5, true, true, 0}, DType::float32)).gradients.empty());
  EXPECT_EQ(expected(made({2, 2, Fill::features, 5, true, true, 4}, DType::float32)).gradients.size(), 5U);
}

// Protects: the shared edge (production's NaN gradient) is flagged where den is 0 below a query that is not, only
// there.
TEST(Expected, FlagsTheSharedEdge) {
  Question question = made({1, 2, Fill::features, 5, true, false, 1}, DType::float32);
  EXPECT_FALSE(expected(question).shared_edge);
  question.inputs[1]->values = {0, 0};
  EXPECT_TRUE(expected(question).shared_edge);
  question.inputs[0]->values = {0, 0};
  EXPECT_FALSE(expected(question).shared_edge);
}

}  // namespace
}  // namespace fractus::oracle::linear_attention
