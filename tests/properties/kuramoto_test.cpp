// The oscillators' fills: they are what they say, aim where they say, and show the known faults to the oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "properties/driver.h"
#include "properties/kuramoto_fill.h"
#include "tests/oracle/kuramoto_forms.h"

namespace fractus::kuramoto {

const Driver& driver();

namespace {

namespace forms = oracle::kuramoto;

Case made(const std::string& fill, DType dtype, const Dims& dims, std::uint64_t seed) {
  Case c;
  c.kernel = "kuramoto";
  c.dtype = dtype;
  c.dims = dims;
  c.fill = fill;
  c.seed = seed;
  c.cotangents = {"theta"};
  return c;
}

Dims dims(std::int64_t T, std::int64_t d, std::int64_t P, std::int64_t n_steps) {
  return {{"B", 1}, {"T", T}, {"d", d}, {"P", P}, {"r", 3}, {"n_steps", n_steps}};
}

forms::Question question_of(const Problem& problem, DType dtype) {
  return {.dtype = dtype,
          .inputs = problem.inputs,
          .n_steps = static_cast<std::int64_t>(problem.scalars.at("n_steps")),
          .dt = problem.scalars.at("dt"),
          .damping = problem.scalars.at("damping"),
          .cotangent = problem.cotangents.at(0)};
}

// The largest ratio of theta and the gradients of a form on a case, judged as the harness judges it.
double ratio(const Case& c, const forms::Form& form) {
  const Problem problem = driver().fill(c);
  const forms::Answer answer = forms::evaluated(question_of(problem, c.dtype), form);
  const std::vector<Array> outputs{answer.theta};
  const oracle::Expected open = driver().expected(problem, c.dtype, {});
  const oracle::Expected expected =
      open.choices_in_doubt == 0 ? open : driver().expected(problem, c.dtype, {.outputs = &outputs});
  double worst = 0;
  const auto judge = [&](const oracle::ExpectedTensor& tensor, const oracle::ExpectedTensor& either,
                         const std::vector<double>& got) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto judgement = oracle::judge(tensor, either, expected.radius_per_tolerance, i, got[i]);
      if (judgement.verdict != oracle::Verdict::undecidable) worst = std::max(worst, judgement.ratio);
    }
  };
  judge(expected.outputs[0], expected.outputs[0], answer.theta.values);
  for (std::size_t i = 0; i < 4; ++i) judge(*expected.gradients[i], *open.gradients[i], answer.gradients[i]);
  return worst;
}

// Protects: values that the dtype holds, all of the extents' shapes, and the same numbers from the same seed.
TEST(KuramotoFill, HoldsWhatTheDTypeHolds) {
  for (const std::string& fill : fill_names())
    for (DType dtype : {DType::float32, DType::float64}) {
      const Case c = made(fill, dtype, dims(5, 7, 4, 2), 3);
      const Problem problem = driver().fill(c);
      ASSERT_EQ(problem.inputs.size(), 4U);
      for (const auto& input : problem.inputs)
        for (double x : input->values) EXPECT_EQ(x, rounded(x, dtype)) << fill;
      EXPECT_EQ(problem.inputs[0]->values.size(), 35U);
      EXPECT_EQ(problem.cotangents[0]->values.size(), 20U);
      EXPECT_EQ(driver().fill(c).inputs, problem.inputs);
    }
  EXPECT_THROW(driver().fill(made("no such fill", DType::float32, dims(1, 1, 1, 1), 0)), std::invalid_argument);
  EXPECT_THROW(driver().fill(made("ordinary", DType::float32, dims(1, 1, 0, 1), 0)), std::invalid_argument);
}

// Protects: the fill that aims at choices reaches the wraps before the first step and behind each, in either dtype, and
// leaves next to no token without a bound; a fresh LayerNorm leaves every token in doubt.
TEST(KuramotoFill, AimsAtTheWraps) {
  for (DType dtype : {DType::float32, DType::float64}) {
    for (std::int64_t n_steps : {0, 1, 4}) {
      const Problem problem = driver().fill(made(near_wrap_fill, dtype, dims(200, 8, 6, n_steps), 11));
      const auto expected = driver().expected(problem, dtype, {});
      EXPECT_GT(expected.choices_in_doubt, 60U) << n_steps;
      EXPECT_LT(expected.choices_in_doubt, 180U) << n_steps << ": some are to be decided";
      EXPECT_EQ(expected.flip_moves > 0, n_steps > 0);
      EXPECT_TRUE(std::isfinite(expected.gradients[1]->tolerance[0])) << "a token has more branches than are followed";
    }
    const Problem fresh = driver().fill(made("fresh", dtype, dims(50, 64, 16, 1), 11));
    const auto expected = driver().expected(fresh, dtype, {});
    EXPECT_EQ(expected.choices_in_doubt, 50U);
    EXPECT_NEAR(expected.flip_moves, 0.0063, 0.002) << "what KERNELS.md has seen of the engine";
  }
}

// Protects: no false alarm on any planned fill, among them those with hundreds of turns, several turns a step, and
// heavy damping.
TEST(KuramotoFill, CorrectFormsAreInside) {
  std::uint64_t seed = 1;
  for (const std::string& fill : fill_names())
    for (const forms::Form& form : forms::forms())
      for (DType dtype : {DType::float32, DType::float64}) {
        const Case c = made(fill, dtype, dims(6, 9, 5, static_cast<std::int64_t>(seed % 4)), seed);
        EXPECT_LT(ratio(c, form), 1) << fill << " " << form.name;
        ++seed;
      }
}

// Negative control: every known fault of mutants/kuramoto.py is outside on the fill that is meant for it.
TEST(KuramotoFill, FaultsAreOutside) {
  using forms::Fault;
  const std::vector<std::pair<Fault, std::string>> faults{{Fault::damping_sign, "ordinary"},
                                                          {Fault::euler, "ordinary"},
                                                          {Fault::three_eighths, "strong"},
                                                          {Fault::truncated, "negative_means"},
                                                          {Fault::lambda_on_sine_only, "ordinary"},
                                                          {Fault::offsets, "undamped"},
                                                          {Fault::bf16, "ordinary"}};
  for (const auto& [fault, fill] : faults)
    for (DType dtype : {DType::float32, DType::float64}) {
      forms::Form form = forms::forms().front();
      form.fault = fault;
      EXPECT_GT(ratio(made(fill, dtype, dims(6, 9, 5, 1), 5), form), 1) << static_cast<int>(fault) << " " << fill;
    }
}

}  // namespace
}  // namespace fractus::kuramoto
