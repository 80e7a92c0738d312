// Calls of the test worker's forms: what arrives there, what comes back, and which breaches are found.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "tests/harness/example.h"

namespace fractus {
namespace {

// "kind: text" of each breach, joined.
std::string breaches(const Answer& answer) {
  std::string all;
  for (const Breach& breach : answer.breaches) all += (all.empty() ? "" : "; ") + breach.kind + ": " + breach.text;
  return all;
}

TEST(Call, BringsValuesThereAndBack) {
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Layout layout : {Layout::contiguous, Layout::offset, Layout::transposed, Layout::column_major,
                                Layout::sliced, Layout::padded}) {
      Call call = example("test_echo", dtype);
      lay_out(call, layout);
      const Answer answer = answer_to(call);
      ASSERT_EQ(answer.status, Status::ok) << answer.message;
      EXPECT_EQ(breaches(answer), "");
      ASSERT_EQ(answer.outputs.size(), 3u);
      EXPECT_EQ(answer.outputs[0].values, call.inputs[0]->values);
      EXPECT_EQ(answer.outputs[1].values, call.inputs[3]->values);
      EXPECT_EQ(answer.outputs[2].values, call.inputs[4]->values);
      EXPECT_EQ(answer.outputs[1].name, "S");
      EXPECT_EQ(answer.outputs[1].dtype, dtype);
      EXPECT_GT(answer.seconds, 0);
      EXPECT_GT(answer.peak_resident_bytes, 0);
    }
}

TEST(Call, LaysTensorsOutAsAsked) {
  const auto strides = [](Layout layout) {
    Call call = example("test_strides");
    lay_out(call, layout);
    for (auto& input : call.inputs)
      if (layout >= Layout::expanded) std::fill(input->values.begin(), input->values.end(), 1.5);
    const Answer answer = answer_to(call);
    return std::vector<double>(answer.outputs.at(0).values.begin(), answer.outputs.at(0).values.begin() + 4);
  };
  EXPECT_EQ(strides(Layout::contiguous), (std::vector<double>{12, 4, 1, 0}));
  EXPECT_EQ(strides(Layout::transposed), (std::vector<double>{4, 8, 1, 0}));
  EXPECT_EQ(strides(Layout::sliced), (std::vector<double>{27, 9, 2, 1}));
  EXPECT_EQ(strides(Layout::padded), (std::vector<double>{192, 64, 1, 0}));
  EXPECT_EQ(strides(Layout::expanded), (std::vector<double>{0, 4, 1, 0}));
  EXPECT_EQ(strides(Layout::offset), (std::vector<double>{12, 4, 1, 1}));
  EXPECT_EQ(strides(Layout::column_major), (std::vector<double>{12, 1, 3, 0}));
  EXPECT_EQ(strides(Layout::expanded_middle), (std::vector<double>{4, 0, 1, 0}));
  EXPECT_EQ(strides(Layout::expanded_inner), (std::vector<double>{3, 1, 0, 0}));
  EXPECT_EQ(strides(Layout::broadcast), (std::vector<double>{0, 0, 0, 0}));
}

TEST(Call, RefusesWhatDoesNotFit) {
  Process process = workshop().spawn();
  const auto refused = [&](auto change) {
    Call asked = example("test_plain");
    change(asked);
    EXPECT_THROW(call(process, asked, 5s), std::invalid_argument);
  };
  refused([](Call& call) { call.kernel = "no_such"; });
  refused([](Call& call) { call.inputs.pop_back(); });
  refused([](Call& call) { call.inputs[0].reset(); });
  refused([](Call& call) { call.inputs[1] = tensor("k", {2, 3, 5}, 1); });
  refused([](Call& call) { lay_out(call, Layout::expanded); });
  refused([](Call& call) { call.cotangents = {tensor("y", {2, 3}, 1)}; });
  Call unknown = example("no_such");
  EXPECT_THROW(call(process, unknown, 5s), std::invalid_argument);
  unknown = example("test_plain");
  unknown.settings["no_such"] = 1;
  EXPECT_THROW(call(process, unknown, 5s), std::invalid_argument);
  EXPECT_EQ(call(process, example("test_plain"), 5s).status, Status::ok);
}

TEST(Call, GivesGradients) {
  const Call asked = with_backward(example("test_plain"));
  const Answer answer = answer_to(asked);
  ASSERT_EQ(answer.status, Status::ok) << answer.message;
  EXPECT_EQ(breaches(answer), "");
  ASSERT_EQ(answer.gradients.size(), 5u);
  ASSERT_TRUE(answer.gradients[0] && answer.gradients[1]);
  EXPECT_FALSE(answer.gradients[2] || answer.gradients[3] || answer.gradients[4]);
  EXPECT_EQ(answer.gradients[0]->name, "q");
  for (std::size_t i = 0; i < answer.gradients[0]->values.size(); ++i)
    EXPECT_EQ(answer.gradients[0]->values[i], 2 * asked.cotangents[0]->values[i]);
  EXPECT_EQ(answer.gradients[1]->values[4], asked.cotangents[2]->values[0]);
  EXPECT_LT(answer.forward_seconds, answer.seconds);
  for (const Layout layout :
       {Layout::offset, Layout::transposed, Layout::column_major, Layout::sliced, Layout::padded}) {
    Call other = asked;
    lay_out(other, layout);
    EXPECT_EQ(answer_to(other).gradients, answer.gradients);
  }
}

TEST(Call, LeavesAbsentWhatGetsNoGradient) {
  Call asked = with_backward(example("test_detached"));
  asked.cotangents[2].reset();
  const Answer answer = answer_to(asked);
  EXPECT_EQ(answer.status, Status::ok);
  EXPECT_FALSE(answer.gradients[0] || answer.gradients[1]);
}

TEST(Call, SetsTheWorldAsAsked) {
  const auto world = [](const Call& call) {
    const Answer answer = answer_to(call);
    return std::vector<double>(answer.outputs.at(0).values.begin(), answer.outputs.at(0).values.begin() + 4);
  };
  Call call = example("test_world");
  call.gradients = {true};
  call.threads = 2;
  EXPECT_EQ(world(call), (std::vector<double>{2, 0, 0, 64}));  // threads, grad mode, requires_grad, block
  call.record_graph = true;
  call.settings["block"] = 5;
  EXPECT_EQ(world(call), (std::vector<double>{2, 1, 1, 5}));
  call = with_backward(example("test_world"));
  EXPECT_EQ(world(call), (std::vector<double>{1, 1, 1, 64}));
}

TEST(Call, KeepsStateWithinAProcessOnly) {
  Process process = workshop().spawn();
  EXPECT_EQ(call(process, example("test_counter"), 5s).outputs[0].values[0], 1);
  EXPECT_EQ(call(process, example("test_counter"), 5s).outputs[0].values[0], 2);
  EXPECT_EQ(answer_to(example("test_counter")).outputs[0].values[0], 1);
}

TEST(Call, FindsBreaches) {
  const auto found = [](const char* form) { return breaches(answer_to(example(form))); };
  EXPECT_EQ(found("test_plain"), "");
  EXPECT_EQ(found("test_columns"), "");
  EXPECT_EQ(found("test_count"), "count: wanted 3 outputs, got 2");
  EXPECT_EQ(found("test_absent"), "count: y is absent");
  EXPECT_EQ(found("test_shape"), "shape: y: wanted (2, 3, 4), got (3, 2, 4)");
  EXPECT_EQ(found("test_dtype"), "dtype: y: wanted float32, got float64");
  EXPECT_EQ(found("test_device"), "device: y: wanted a plain tensor on the CPU, got one on meta");
  EXPECT_EQ(found("test_alias_input"), "alias: y lies in the memory of the input q");
  EXPECT_EQ(found("test_alias_output"), "alias: z shares elements with S");
  EXPECT_EQ(found("test_unwritten"), "unwritten: y[1, 2, 3] holds what was in memory before");
  EXPECT_EQ(found("test_modifies_input"), "modified-input: changed k[0, 0, 1]");
  EXPECT_EQ(found("test_behind_input"), "guard: wrote behind the last element of v");
  EXPECT_EQ(found("test_before_input"), "guard: wrote before the first element of q");
  EXPECT_EQ(found("test_behind_block"), "guard: wrote behind a block of 128 bytes");
  EXPECT_EQ(found("test_random"), "global-state: the global random generator was used or seeded");
}

TEST(Call, FindsWritesBetweenElements) {
  Call call = example("test_between");
  lay_out(call, Layout::sliced);
  EXPECT_EQ(breaches(answer_to(call)), "guard: wrote between the elements of k");
}

TEST(Call, ComparesASecondBackward) {
  const auto found = [](const char* form) {
    Call call = with_backward(example(form));
    call.backward_twice = true;
    return breaches(answer_to(call));
  };
  EXPECT_EQ(found("test_plain"), "");
  EXPECT_EQ(found("test_fickle"),
            "second-backward: the gradient of q is another one in a second backward through the same graph, with the "
            "cotangents' signs changed");
  EXPECT_EQ(found("test_once"), "second-backward: a second backward through the same graph raised: already used");
}

TEST(Call, HandsOverOnlyWhatFits) {
  const Answer answer = answer_to(example("test_shape"));
  EXPECT_EQ(answer.status, Status::ok);
  ASSERT_EQ(answer.outputs.size(), 3u);
  EXPECT_EQ(answer.outputs[0], Array{});
  EXPECT_EQ(answer.outputs[1].name, "S");
}

TEST(Call, CountsMemory) {
  const std::int64_t plain = answer_to(example("test_plain")).peak_extra_bytes;
  const std::int64_t holding = answer_to(example("test_holds_megabyte")).peak_extra_bytes;
  EXPECT_LT(plain, 4096);
  EXPECT_GE(holding, (1 << 20) - 4096);  // the outputs, which are not counted, were not yet there at the peak
  EXPECT_LT(holding, (1 << 20) + 4096);
}

}  // namespace
}  // namespace fractus
