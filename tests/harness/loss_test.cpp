// Calls of a kernel with scalars and whole-number tensors, inputs that are rows of another, and what a form declares of
// its sums.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/harness/example.h"

namespace fractus {
namespace {

// N 3, d 2, V 4.
Call loss_call(const std::string& form, double ce_chunk = 2, DType dtype = DType::float32) {
  Call call;
  call.kernel = "cross_entropy";
  call.form = form;
  call.inputs = {tensor("h", {3, 2}, 1, dtype), tensor("W", {4, 2}, 2, dtype),
                 Array{"targets", DType::int64, {3}, {3, 0, 3}}};
  call.scalars["ce_chunk"] = ce_chunk;
  return call;
}

Call with_gradient(Call call) {
  call.cotangents = {Array{"loss", call.inputs[0]->dtype, {}, {0.5}}};
  call.gradients = {true, true, false};
  return call;
}

// Protects: every verdict of a kernel that has scalars. Negative and large ones arrive as they are.
TEST(Loss, ScalarsAndWholeNumbersArrive) {
  for (const double chunk : {0.0, 7.0, -1.0, 4294967297.0}) {
    const Answer answer = answer_to(loss_call("test_told", chunk, DType::float64));
    ASSERT_EQ(answer.status, Status::ok) << answer.message;
    EXPECT_EQ(answer.outputs.at(0).values.at(0), 1000 * chunk + 6);
    EXPECT_EQ(answer.outputs.at(0).shape, Shape{});
  }
}

// Protects: a call that lacks what the kernel takes is our failure, not the form's.
TEST(Loss, RefusesCallsThatLackAScalarOrHoldTargetsAsFloats) {
  Process process = workshop().spawn();
  Call without = loss_call("test_told");
  without.scalars.clear();
  EXPECT_THROW(call(process, without, 5s), std::invalid_argument);
  Call floats = loss_call("test_told");
  floats.inputs[2]->dtype = DType::float32;
  EXPECT_THROW(call(process, floats, 5s), std::invalid_argument);
}

// Protects: the tightened bound. What a form says of a call comes with its answer, and nonsense is the form's fault.
TEST(Loss, DeclaredDepthComesWithTheAnswer) {
  EXPECT_EQ(answer_to(loss_call("test_scores")).add_depth, 0);
  EXPECT_EQ(answer_to(loss_call("test_depth")).add_depth, 402);
  for (const char* form : {"test_depth_raises", "test_depth_of_nothing"}) {
    const Answer answer = answer_to(loss_call(form));
    ASSERT_EQ(answer.breaches.size(), 1u) << form;
    EXPECT_EQ(answer.breaches[0].kind, "declared-depth");
  }
}

// Protects: "tied" gradients. h is rows of W: what flows into h joins the gradient of W, and h has none of its own.
TEST(Loss, TiedInputsShareOneGradient) {
  const auto value = [](std::int64_t i, std::int64_t k) { return static_cast<double>(2 * i + k + 1); };
  Call call = with_gradient(loss_call("test_scores", 2, DType::float64));
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t k = 0; k < 2; ++k) call.inputs[1]->values[static_cast<std::size_t>(2 * i + k)] = value(i, k);
  call.gradients[0] = false;
  call.tied = Tied{.input = 0, .from = 1, .rows = {1, 1, 2}};
  const Answer answer = answer_to(call);
  ASSERT_EQ(answer.status, Status::ok) << answer.message;
  ASSERT_TRUE(answer.breaches.empty()) << answer.breaches[0].text;
  double loss = 0;
  std::vector<double> dW(8);
  const std::vector<std::int64_t> rows{1, 1, 2}, targets{3, 0, 3};
  for (std::size_t n = 0; n < 3; ++n)
    for (std::int64_t k = 0; k < 2; ++k) {
      loss += value(rows[n], k) * value(targets[n], k);
      dW[static_cast<std::size_t>(2 * targets[n] + k)] += 0.5 * value(rows[n], k);
      dW[static_cast<std::size_t>(2 * rows[n] + k)] += 0.5 * value(targets[n], k);
    }
  EXPECT_EQ(answer.outputs[0].values[0], loss);
  EXPECT_FALSE(answer.gradients[0]);
  ASSERT_TRUE(answer.gradients[1]);
  EXPECT_EQ(answer.gradients[1]->values, dW);
}

// Protects: W shared with an embedding. A backward that clears or replaces the gradient that is already there loses it.
TEST(Loss, EarlierGradientsAreLeftAlone) {
  const auto breaches = [](const char* form) {
    Call call = with_gradient(loss_call(form));
    call.backward_twice = true;
    return answer_to(call).breaches;
  };
  EXPECT_TRUE(breaches("test_leaves_grad").empty());
  for (const char* form : {"test_clears_grad", "test_replaces_grad"}) {
    const auto found = breaches(form);
    ASSERT_FALSE(found.empty()) << form;
    EXPECT_EQ(found[0].kind, "modified-input");
    EXPECT_NE(found[0].text.find("caller's W"), std::string::npos) << found[0].text;
  }
}

}  // namespace
}  // namespace fractus
