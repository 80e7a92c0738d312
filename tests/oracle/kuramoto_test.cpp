// What the oracle says of the oscillators: it refuses no correct form, its values are the true ones, the branches of a
// wrap are those that a correct kernel may take, and the wrong forms at the end of this file are refused.
#include <fmt/format.h>

#include <array>
#include <iostream>

#include "oracle/kuramoto_token.h"
#include "tests/oracle/kuramoto_float50.h"
#include "tests/oracle/kuramoto_forms.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::kuramoto {
namespace {

constexpr std::array<const char*, 5> names{"theta", "dhidden", "domega", "dcoupling_u", "dcoupling_lambda"};

struct Tally {
  double elements = 0, without_bound = 0, in_doubt = 0, flipped = 0;
  std::array<double, 5> worst{};
  std::array<std::string, 5> by{"none", "none", "none", "none", "none"};

  std::string text() const {
    std::string line =
        fmt::format("{:.0f} elements, {:.0f} without a bound, {:.0f} tokens in doubt, {:.0f} flipped:", elements,
                    without_bound, in_doubt, flipped);
    for (std::size_t i = 0; i < 5; ++i) line += fmt::format(" {} {:.3f} ({})", names[i], worst[i], by[i]);
    return line + "\n";
  }
};

const ExpectedTensor& tensor(const Expected& expected, std::size_t i) {
  return i == 0 ? expected.outputs[0] : *expected.gradients[i - 1];
}
const std::vector<double>& values(const Answer& answer, std::size_t i) {
  return i == 0 ? answer.theta.values : answer.gradients[i - 1];
}

// As the harness asks: given the form's own theta where a choice is in doubt.
Expected expected_of(Question question, const Answer& answer) {
  Expected result = expected(question);
  if (result.choices_in_doubt == 0) return result;
  question.answered_theta = &answer.theta;
  return expected(question);
}

// The first element that is not certified equal; empty where there is none. An element without a bound says nothing.
std::string refusal(const Question& question, const Form& form, Tally& tally) {
  const Answer answer = evaluated(question, form);
  const Expected wanted = expected_of(question, answer);
  tally.in_doubt += static_cast<double>(wanted.choices_in_doubt);
  tally.flipped += static_cast<double>(wanted.choices_flipped);
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t e = 0; e < values(answer, i).size(); ++e) {
      ++tally.elements;
      if (!std::isfinite(tensor(wanted, i).tolerance[e])) {
        ++tally.without_bound;
        continue;
      }
      const Judgement judgement = judge(tensor(wanted, i), wanted.radius_per_tolerance, e, values(answer, i)[e]);
      if (judgement.ratio > tally.worst[i]) tally.worst[i] = judgement.ratio, tally.by[i] = form.name;
      if (judgement.verdict != Verdict::equal)
        return fmt::format("{}: {}[{}]: got {}, value {}, tolerance {}, ratio {}", form.name, names[i], e,
                           values(answer, i)[e], tensor(wanted, i).value[e], tensor(wanted, i).tolerance[e],
                           judgement.ratio);
    }
  return "";
}

std::string every_form_is_equal(const Draw& draw, DType dtype, Tally& tally) {
  const Question question = made(draw, dtype);
  for (const Form& form : forms())
    if (std::string refused = refusal(question, form, tally); !refused.empty()) return refused;
  return "";
}

void expect_mostly_bounded(const Tally& tally) {
  std::cout << tally.text();
  EXPECT_LT(tally.without_bound, tally.elements / 50);
  EXPECT_GT(tally.in_doubt, 0);
  EXPECT_GT(tally.flipped, 0);
}

// Protects: no false alarm, whatever the form and wherever the angles lie, wraps in doubt among them.
TEST(Kuramoto, BoundsEveryFormInFloat32) {
  Tally tally;
  EXPECT_TRUE(holds(300, [&] { return every_form_is_equal(*draws(), DType::float32, tally); }));
  expect_mostly_bounded(tally);
}

// Protects: the same for float64 candidates, whose values come in two parts.
TEST(Kuramoto, BoundsEveryFormInFloat64) {
  Tally tally;
  EXPECT_TRUE(holds(120, [&] { return every_form_is_equal(*draws(), DType::float64, tally); }));
  expect_mostly_bounded(tally);
}

// Protects: the same where the mean is a long sum, so that what it is off by turns all angles alike and far.
TEST(Kuramoto, BoundsEveryFormOfLongRows) {
  Tally tally;
  EXPECT_TRUE(holds(25, [&] {
    Draw draw = *draws(2, 2, 16, 1);
    draw.d = 1280 + draw.d;
    return every_form_is_equal(draw, DType::float32, tally);
  }));
  std::cout << tally.text();
}

testing::AssertionResult values_within_radius(int count, DType dtype) {
  double worst = 0, bounded = 0;
  auto result = holds(count, [&] {
    const Draw draw = *draws(2, 6, 5, 2);
    Question question = made(draw, dtype);
    const Array truth = true_theta(question);
    question.answered_theta = &truth;
    const Distance distance = distance_to_truth(question, expected(question));
    worst = std::max(worst, distance.over_radius);
    bounded += distance.bounded;
    return distance.where;
  });
  std::cout << fmt::format("worst |value - truth| / radius {:.3f} over {:.0f} elements\n", worst, bounded);
  return result;
}

// Protects: the values that candidates are measured from are known as well as `judge` assumes, on the true branch.
TEST(Kuramoto, ValueIsWithinItsRadiusInFloat32) { EXPECT_TRUE(values_within_radius(150, DType::float32)); }
TEST(Kuramoto, ValueIsWithinItsRadiusInFloat64) { EXPECT_TRUE(values_within_radius(150, DType::float64)); }

// Protects: definition and tape against a fault that they share, by derivatives that know neither.
TEST(Kuramoto, GradientsEqualCentralDifferences) {
  for (std::uint64_t seed : {1, 2, 3}) {
    const Draw draw{1, 2, 3, 2, 2, Fill::ordinary, seed};
    EXPECT_LT(gradients_against_differences(made(draw, DType::float64)), 1e-28);
  }
}

// Protects: a wrap's candidates are what correct kernels do near a multiple of 2 pi, and no more than that. x is known
// to its one rounding here.
TEST(Kuramoto, CandidatesOfAWrap) {
  using R = Companion<DType::float32>;
  const double turn = 2 * std::numbers::pi, u = unit_roundoff(DType::float32);
  const auto turns = [](double x) { return turns_of(R(x, std::fabs(x), 1, 0, 1), 0); };
  using Turns = std::vector<std::int64_t>;
  for (const int k : {-300, -3, 1, 2, 40}) {
    EXPECT_EQ(turns(k * turn + std::fabs(k * turn) * u / 8), (Turns{k, k - 1})) << k;
    EXPECT_EQ(turns(k * turn - std::fabs(k * turn) * u / 8), (Turns{k - 1, k})) << k;
    EXPECT_EQ(turns(k * turn + 1), (Turns{k}));
    EXPECT_EQ(turns(k * turn - 1), (Turns{k - 1}));
    EXPECT_EQ(turns(k * turn + 40 * std::fabs(k * turn) * u), (Turns{k})) << "the bound is no wider than it has to be";
  }
  EXPECT_EQ(turns(1e-20), (Turns{0})) << "above 0 no remainder is near 2 pi";
  EXPECT_EQ(turns(-1e-20), (Turns{-1, 0})) << "a remainder just below 2 pi may round to it, and be taken for 0";
  EXPECT_EQ(turns(0), (Turns{0}));
  EXPECT_TRUE(turns_of(R(1, 1, 0, 4, 1), 0).empty()) << "any number of turns";
  EXPECT_EQ(turns_of(R(0.25), 0.5), (Turns{0, -1})) << "what turns all angles alike turns this one";
}

// Protects: 0 and 2 pi are neighbours, and an angle elsewhere than in [0, 2 pi] is none of the contract's.
TEST(Kuramoto, AnglesAreOnTheCircle) {
  using R = Companion<DType::float32>;
  const double turn = 2 * std::numbers::pi, rounded_turn = static_cast<float>(turn);
  const R below(turn - 1e-9), above(1e-9, 1, 1, 0, 1);
  for (const double got : {0.0, rounded_turn, static_cast<double>(std::nextafter(6.2831855F, 0.0F))})
    EXPECT_LE(std::fabs(placed(below, 0, got).value - got), placed(below, 0, got).tolerance) << got;
  EXPECT_LE(std::fabs(placed(above, 0, rounded_turn).value - rounded_turn), placed(above, 0, rounded_turn).tolerance);
  EXPECT_GT(std::fabs(placed(R(6.0), 0, 6.0 - turn).value - (6.0 - turn)), 1);
}

// A row of which nothing is left but roundings, as behind a fresh LayerNorm.
Question fresh() { return made({4, 64, 16, 8, 1, Fill::fresh, 3}, DType::float32); }

// Protects: the coin flip that KERNELS.md tells of. Both branches are right, each with its own angles, 2 pi damping dt
// apart, and what lies between them is none.
TEST(Kuramoto, AFreshNormMakesACoinFlip) {
  Question question = fresh();
  const Expected both = expected(question);
  EXPECT_EQ(both.choices_in_doubt, 4U);
  EXPECT_NEAR(both.flip_moves, 2 * std::numbers::pi * question.damping * question.dt, 0.3 * both.flip_moves);
  for (double tolerance : both.outputs[0].tolerance) EXPECT_TRUE(std::isinf(tolerance));

  Array theta = evaluated(question, forms().front()).theta;
  question.answered_theta = &theta;
  const Expected own = expected(question);
  Array other = theta;
  for (double& x : other.values) x -= both.flip_moves / 2;
  Question between = question;
  between.answered_theta = &other;
  const Expected halfway = expected(between);
  int refused = 0;
  for (std::size_t i = 0; i < theta.values.size(); ++i) {
    EXPECT_EQ(judge(own.outputs[0], own.radius_per_tolerance, i, theta.values[i]).verdict, Verdict::equal);
    refused +=
        judge(halfway.outputs[0], halfway.radius_per_tolerance, i, other.values[i]).verdict == Verdict::different;
  }
  EXPECT_GT(refused, 50);
}

// Protects: without the form's own theta the gradients cover every branch, and decide all the same.
TEST(Kuramoto, TheHullOfBranchesCoversEach) {
  const Question question = fresh();
  const Expected hull = expected(question);
  int flipped = 0;
  for (const Form& form : forms()) {
    const Answer answer = evaluated(question, form);
    flipped += expected_of(question, answer).choices_flipped > 0;
    for (std::size_t i = 1; i < 5; ++i)
      for (std::size_t e = 0; e < values(answer, i).size(); ++e) {
        const Judgement judgement = judge(tensor(hull, i), hull.radius_per_tolerance, e, values(answer, i)[e]);
        EXPECT_EQ(judgement.verdict, Verdict::equal) << form.name << " " << names[i];
        EXPECT_LT(tensor(hull, i).tolerance[e], 0.5);
      }
  }
  EXPECT_GT(flipped, 0);
}

// Protects: with no damping no wrap is a choice: sin and cos do not see whole turns.
TEST(Kuramoto, WithoutDampingNoWrapMatters) {
  Question question = fresh();
  question.damping = 0;
  const Expected result = expected(question);
  EXPECT_EQ(result.flip_moves, 0);
  for (std::size_t t = 0; t < 4; ++t) EXPECT_TRUE(std::isfinite(result.gradients[0]->tolerance[64 * t]));
  Tally tally;
  for (const Form& form : forms()) EXPECT_EQ(refusal(question, form, tally), "");
}

// Protects: a token with more branches than are followed has no bound, and nothing that it takes part in has one.
TEST(Kuramoto, TooManyBranchesAreUndecidable) {
  Question question = made({2, 4, 16, 2, 1, Fill::ordinary, 3}, DType::float32);
  std::fill_n(question.inputs[0]->values.begin(), 4, 3e5);  // an interval wider than the space between oscillators
  const Expected result = expected(question);
  for (std::size_t p = 0; p < 16; ++p) EXPECT_TRUE(std::isinf(result.outputs[0].tolerance[p]));
  for (std::size_t p = 16; p < 32; ++p) EXPECT_TRUE(std::isfinite(result.outputs[0].tolerance[p]));
  EXPECT_TRUE(std::isinf(result.gradients[1]->tolerance[0]));
  EXPECT_TRUE(std::isinf(result.gradients[0]->tolerance[0]));
  EXPECT_TRUE(std::isfinite(result.gradients[0]->tolerance[4]));
}

// Protects: a row of zeros is 0 in every kernel, and its angles are the offsets: nothing is in doubt.
TEST(Kuramoto, ARowOfZerosIsDecided) {
  Question question = made({1, 5, 4, 2, 1, Fill::ordinary, 3}, DType::float32);
  std::fill(question.inputs[0]->values.begin(), question.inputs[0]->values.end(), 0.0);
  EXPECT_EQ(expected(question).choices_in_doubt, 0U);
}

// Protects: a verdict does not depend on the machine's number of cores.
TEST(Kuramoto, ThreadsDoNotChangeABit) {
  for (DType dtype : {DType::float32, DType::float64}) {
    Question question = made({13, 9, 6, 3, 2, Fill::near_wrap, 5}, dtype);
    const Expected one = expected(question);
    question.threads = 3;
    const Expected three = expected(question);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(tensor(one, i).value, tensor(three, i).value);
      EXPECT_EQ(tensor(one, i).tolerance, tensor(three, i).tolerance);
    }
  }
}

// Protects: what is no call is said; a call of no tokens is one.
TEST(Kuramoto, RefusesWhatIsNoCall) {
  const Question good = made({2, 3, 4, 2, 1, Fill::ordinary, 3}, DType::float32);
  Question bad = good;
  bad.inputs[1].reset();
  EXPECT_THROW(expected(bad), std::invalid_argument);
  bad = good;
  bad.inputs[2]->shape = {2, 4};
  EXPECT_THROW(expected(bad), std::invalid_argument);
  bad = good;
  bad.n_steps = -1;
  EXPECT_THROW(expected(bad), std::invalid_argument);
  Question empty = good;
  empty.inputs[0] = zeros("hidden", DType::float32, {2, 0, 3});
  empty.cotangent = zeros("theta", DType::float32, {2, 0, 4});
  EXPECT_EQ(expected(empty).gradients[2]->value, std::vector<double>(8));
}

// The largest ratio of each tensor under a fault, the branch chosen to suit it.
std::array<double, 5> ratios(const Question& question, Form form, Fault fault) {
  form.fault = fault;
  const Answer answer = evaluated(question, form);
  const Expected wanted = expected_of(question, answer);
  std::array<double, 5> worst{};
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t e = 0; e < values(answer, i).size(); ++e)
      worst[i] =
          std::max(worst[i], judge(tensor(wanted, i), wanted.radius_per_tolerance, e, values(answer, i)[e]).ratio);
  return worst;
}

// Negative controls: the mutants of mutants/kuramoto.py, a last wrap that is missing and a rate in bfloat16 leave the
// tolerance, and without the fault the same form stays inside.
TEST(Kuramoto, RefusesFaults) {
  const Form& form = forms().front();
  const auto most = [](const std::array<double, 5>& all) { return *std::max_element(all.begin(), all.end()); };
  for (DType dtype : {DType::float32, DType::float64}) {
    const Question negative = made({3, 8, 6, 3, 1, Fill::negative, 5}, dtype),
                   strong = made({3, 8, 6, 3, 1, Fill::strong, 5}, dtype);
    EXPECT_LT(most(ratios(negative, form, Fault::none)), 1);
    EXPECT_LT(most(ratios(strong, form, Fault::none)), 1);
    for (Fault fault : {Fault::damping_sign, Fault::euler, Fault::truncated, Fault::lambda_on_sine_only, Fault::offsets,
                        Fault::bf16, Fault::no_wrap}) {
      std::cout << fmt::format("fault {}: theta {:.3g}\n", static_cast<int>(fault), ratios(negative, form, fault)[0]);
      EXPECT_GT(ratios(negative, form, fault)[0], 1) << static_cast<int>(fault);
    }
    EXPECT_GT(ratios(strong, form, Fault::three_eighths)[0], 1);
  }
}

// Negative control: were the mean's error carried into every angle by itself, the tolerance of a long row's gradients
// would be hundreds of times what it is, and the loss of one token's share would pass.
TEST(Kuramoto, ALostTokenShowsInLongRows) {
  const Question question = made({64, 1280, 16, 8, 1, Fill::ordinary, 5}, DType::float32);
  Answer answer = evaluated(question, forms().front());
  const Expected wanted = expected_of(question, answer);
  Question last = question;
  last.inputs[0]->values.erase(last.inputs[0]->values.begin(), last.inputs[0]->values.end() - 1280);
  last.cotangent->values.erase(last.cotangent->values.begin(), last.cotangent->values.end() - 16);
  last.inputs[0]->shape[1] = last.cotangent->shape[1] = 1;
  const Answer lost = evaluated(last, forms().front());
  for (std::size_t i : {2, 3, 4}) {
    double worst = 0;
    for (std::size_t e = 0; e < values(answer, i).size(); ++e)
      worst = std::max(
          worst,
          judge(tensor(wanted, i), wanted.radius_per_tolerance, e, values(answer, i)[e] - values(lost, i)[e]).ratio);
    EXPECT_GT(worst, 1) << names[i];
  }
}

}  // namespace
}  // namespace fractus::oracle::kuramoto
