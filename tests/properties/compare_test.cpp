// The comparator. Its holes would be the harness's holes, so each known one of PEERS.md is tried here by hand.
#include "properties/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "properties/cases.h"

namespace fractus {
namespace {

const Driver& driver() { return *find_driver("linear_attention"); }

Case example(const std::string& fill = "feature") {
  Case c = base_case(driver(), "gradients", DType::float32, {{"G", 2}, {"T", 5}, {"D", 3}}, fill);
  c.cotangents = output_names(driver());
  c.seed = 11;
  return c;
}

// The definition's own values, rounded to the dtype: a perfect kernel.
Answer perfect(Expectation& expectation) {
  const auto expected = expectation.expected({});
  const auto array = [&](const oracle::ExpectedTensor& tensor) {
    Array a{tensor.name, expected->dtype, tensor.shape, tensor.value};
    for (double& x : a.values) x = rounded(x, expected->dtype);
    return a;
  };
  Answer answer;
  for (const auto& output : expected->outputs) answer.outputs.push_back(array(output));
  for (const auto& gradient : expected->gradients) answer.gradients.emplace_back(array(*gradient));
  return answer;
}

// Protects: no false refusal of the most exact kernel there is.
TEST(Compare, AcceptsThePerfectKernel) {
  for (const std::string& fill : driver().fills) {
    Expectation expectation(driver(), example(fill), 1);
    if (expectation.expected({})->choices_in_doubt > 0) continue;
    const Outcome outcome = compare(expectation, perfect(expectation));
    EXPECT_FALSE(outcome.finding) << fill << ": " << outcome.finding->text;
    EXPECT_GT(outcome.elements, 0);
  }
}

// Protects: every element counts. One wrong element of any tensor, by a few units of its bound, is found and named.
TEST(Compare, SeesOneWrongElementAnywhere) {
  Expectation expectation(driver(), example(), 1);
  const Answer right = perfect(expectation);
  const auto expected = expectation.expected({});
  const auto spoil = [&](Array& array, const oracle::ExpectedTensor& tensor, const Answer& answer) {
    for (std::size_t i = 0; i < array.values.size(); ++i) {
      const double kept = array.values[i];
      array.values[i] += 2 * tensor.tolerance[i];
      const Outcome outcome = compare(expectation, answer);
      ASSERT_TRUE(outcome.finding) << tensor.name << i;
      EXPECT_EQ(outcome.finding->tensor, tensor.name);
      EXPECT_EQ(outcome.finding->index, index_of(i, tensor.shape));
      array.values[i] = kept;
    }
  };
  Answer answer = right;
  for (std::size_t k = 0; k < 3; ++k) spoil(answer.outputs[k], expected->outputs[k], answer);
  for (std::size_t k = 0; k < 5; ++k) spoil(*answer.gradients[k], *expected->gradients[k], answer);
}

// Protects: NaN and infinity are equal to nothing, and a missing gradient is a gradient of zeros.
TEST(Compare, RefusesWhatIsNoNumber) {
  Expectation expectation(driver(), example(), 1);
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Answer answer = perfect(expectation);
    answer.gradients[1]->values[4] = bad;
    const Outcome outcome = compare(expectation, answer);
    ASSERT_TRUE(outcome.finding);
    EXPECT_EQ(outcome.finding->kind, "not-finite");
    EXPECT_EQ(outcome.finding->tensor, "dk");
  }
  Answer answer = perfect(expectation);
  answer.gradients[3].reset();
  const Outcome outcome = compare(expectation, answer);
  ASSERT_TRUE(outcome.finding);
  EXPECT_EQ(outcome.finding->tensor, "dS0");
}

// Protects: the whole tensor is compared with itself, not with a rearrangement: swapped rows are seen.
TEST(Compare, SeesSwappedRows) {
  Expectation expectation(driver(), example(), 1);
  Answer answer = perfect(expectation);
  for (std::size_t c = 0; c < 3; ++c) std::swap(answer.outputs[0].values[c], answer.outputs[0].values[3 + c]);
  EXPECT_TRUE(compare(expectation, answer).finding);
}

// Protects: a constant answer, and one of zeros.
TEST(Compare, RefusesConstants) {
  Expectation expectation(driver(), example(), 1);
  for (double constant : {0.0, 0.75}) {
    Answer answer = perfect(expectation);
    for (double& x : answer.outputs[0].values) x = constant;
    EXPECT_TRUE(compare(expectation, answer).finding) << constant;
  }
}

// Protects: bit equality where it is certified, and only there.
TEST(Compare, DemandsBitsOnLattices) {
  Case c = example("lattice_balanced");
  Expectation expectation(driver(), c, 1);
  Outcome clean;
  demand_exact(expectation, perfect(expectation), clean);
  EXPECT_FALSE(clean.finding);
  EXPECT_GT(clean.bit_equal, 50);

  Answer answer = perfect(expectation);
  double& x = answer.outputs[1].values[2];
  x = static_cast<double>(std::nextafterf(static_cast<float>(x), 1e30f));
  Outcome outcome;
  demand_exact(expectation, answer, outcome);
  ASSERT_TRUE(outcome.finding);
  EXPECT_EQ(outcome.finding->kind, "bits");
  EXPECT_EQ(outcome.finding->tensor, "S");
}

// Protects: a row in doubt. y is one branch or the other and nothing between; each gradient may be of either branch
// whichever y took, sets no ratio where it is not of y's, and is refused beyond both.
TEST(Compare, GradientsOfARowInDoubtMayTakeEitherBranch) {
  Case c = base_case(driver(), "choices", DType::float32, {{"G", 1}, {"T", 1}, {"D", 1}}, "near_cut");
  c.absent = {"S0", "z0"};
  c.cotangents = {"y"};
  const auto tensor = [](const char* name, double value) {
    return Array{name, DType::float32, {1, 1, 1}, {rounded(value, DType::float32)}};
  };
  const Problem problem{.inputs = {tensor("q", 0x1p-17), tensor("k", 1e-10 * 0x1p17), tensor("v", 1), {}, {}},
                        .cotangents = {tensor("y", 1), {}, {}}};
  Expectation expectation(driver(), c, problem, 1);
  ASSERT_EQ(expectation.either()->choices_in_doubt, 1u);
  const auto outcome = [&](double y, double dv) {
    Answer answer = perfect(expectation);
    answer.outputs[0].values = {y};
    for (auto& gradient : answer.gradients) gradient->values = {0};
    answer.gradients[2]->values = {dv};
    return compare(expectation, answer);
  };
  for (double y : {0.0, 1.0}) {
    for (double dv : {0.0, 1.0}) {
      const Outcome fine = outcome(y, dv);
      EXPECT_FALSE(fine.finding) << fine.finding->text;
      EXPECT_EQ(fine.undecidable, 0);
      EXPECT_LT(fine.worst_ratio.at("dv"), 0.5);
    }
    for (double dv : {-0.1, 1.1}) {
      const Outcome beyond = outcome(y, dv);
      ASSERT_TRUE(beyond.finding);
      EXPECT_EQ(beyond.finding->tensor, "dv");
      EXPECT_NE(beyond.finding->text.find("whichever way the choices in doubt go"), std::string::npos);
    }
  }
  EXPECT_EQ(outcome(0.5, 0).finding->tensor, "y");
}

// Protects: what is no answer never counts as one.
TEST(Compare, NamesTrouble) {
  Answer answer;
  EXPECT_FALSE(trouble(answer));
  for (Status status : {Status::raised, Status::crashed, Status::timed_out, Status::out_of_memory}) {
    answer.status = status;
    ASSERT_TRUE(trouble(answer));
    EXPECT_TRUE(trouble(answer)->broken);
  }
  answer.status = Status::ok;
  answer.breaches = {{"alias", "y shares memory with v"}};
  EXPECT_EQ(trouble(answer)->kind, "alias");
  EXPECT_EQ(trouble(answer)->waiver, "");
  answer.breaches = {{"second-backward", "it throws"}};
  EXPECT_EQ(trouble(answer)->waiver, "single-backward");
}

}  // namespace
}  // namespace fractus
