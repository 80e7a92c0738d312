// How a golden file becomes a call: names, groups, chunks, scalars and cotangents. The files themselves are checked by
// the command; these are small ones that say one thing each.
#include "harness/recorded.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "contracts/block_core.h"
#include "contracts/moe_gate.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

using nlohmann::json;

// A gate's record: one row, two tokens, two oscillators, three experts, two of them chosen.
std::vector<Array> gate_arrays() {
  std::vector<Array> arrays{tensor("phases", {1, 2, 2}, 0),       tensor("expert_phases", {3}, 1),
                            tensor("gates", {1, 2, 3}, 2),        tensor("topk_idx", {1, 2, 2}, 0, DType::int64),
                            tensor("topk_weights", {1, 2, 2}, 3), tensor("lb", {}, 4),
                            tensor("dphases", {1, 2, 2}, 5),      tensor("weights_cotangent", {2}, 6)};
  for (std::size_t i = 2; i < 7; ++i) {
    Array wide = arrays[i];
    wide.name += "_f64";
    for (double& value : wide.values) value += 0x1p-40;
    arrays.push_back(std::move(wide));
  }
  return arrays;
}

const json gate_entry{{"kappa", 4.0}, {"temperature", 2.5}, {"top_k", 2}};

Recorded gate_record(std::vector<Array> arrays = gate_arrays(), json entry = gate_entry) {
  return recorded_calls("gate.pt", std::move(arrays), entry).front();
}

const Driver& gate() { return *find_driver("moe_gate"); }

// Protects: scalars come from the index, extents from the tensors, and a cotangent that is stated once is that of every
// token; the gates have none, and lb starts by itself.
TEST(Recorded, GateIsReadWhole) {
  const Recorded record = gate_record();
  const Case c = record.case_of(gate(), DType::float32, {});
  EXPECT_EQ(c.dims, (Dims{{"B", 1}, {"T", 2}, {"P", 2}, {"E", 3}, {"top_k", 2}}));
  EXPECT_EQ(c.cotangents, (std::vector<std::string>{"topk_weights", "lb"}));
  const Problem problem = record.problem_of(gate(), c);
  EXPECT_EQ(problem.scalars, (Scalars{{"kappa", 4}, {"temperature", 2.5}, {"top_k", 2}}));
  EXPECT_FALSE(problem.cotangents[0] || problem.cotangents[1]);
  const std::vector<double> stated = gate_arrays()[7].values;
  EXPECT_EQ(problem.cotangents[2]->values, (std::vector<double>{stated[0], stated[1], stated[0], stated[1]}));
  EXPECT_EQ(problem.cotangents[3]->values, (std::vector<double>{1}));
  const Answer answer = record.answer_of(gate(), c);
  EXPECT_EQ(answer.outputs[1].dtype, DType::int64);
  EXPECT_EQ(answer.outputs[0].values, gate_arrays()[2].values);
  EXPECT_EQ(answer.gradients[0]->values, gate_arrays()[6].values);
  EXPECT_FALSE(answer.gradients[1]);
  const Case wide = record.case_of(gate(), DType::float64, {});
  EXPECT_EQ(record.answer_of(gate(), wide).outputs[0].values, gate_arrays()[8].values);
}

// Protects: a record that lacks something, or holds it in another shape, is no record: the error names it.
TEST(Recorded, WhatIsMissingIsNamed) {
  const auto complaint = [](std::vector<Array> arrays, json entry) {
    try {
      const Recorded record = gate_record(std::move(arrays), std::move(entry));
      const Case c = record.case_of(gate(), DType::float32, {});
      record.problem_of(gate(), c);
      record.answer_of(gate(), c);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto without = [](const std::string& name) {
    std::vector<Array> arrays = gate_arrays();
    std::erase_if(arrays, [&](const Array& array) { return array.name == name; });
    return arrays;
  };
  EXPECT_EQ(complaint(gate_arrays(), gate_entry), "");
  EXPECT_EQ(complaint(without("dphases"), gate_entry), "'gate.pt': tensor 'dphases' is missing");
  EXPECT_EQ(complaint(without("expert_phases"), gate_entry),
            "'gate.pt': nothing tells the extent E: tensor 'expert_phases' is missing or has too few dimensions");
  EXPECT_EQ(complaint(without("weights_cotangent"), gate_entry), "'gate.pt': tensor 'ggates' is missing");
  EXPECT_EQ(complaint(gate_arrays(), {{"kappa", 4.0}, {"top_k", 2}}),
            "'gate.pt': nothing tells the scalar temperature");
  EXPECT_EQ(complaint(gate_arrays(), {{"kappa", 4.0}, {"temperature", 1}}),
            "'gate.pt': nothing tells the scalar top_k");
  std::vector<Array> other = gate_arrays();
  other[2] = tensor("gates", {1, 2, 4}, 2);
  EXPECT_EQ(complaint(other, gate_entry), "'gate.pt': tensor 'gates': wanted shape (1, 2, 3), got (1, 2, 4)");
}

// Two chunks of a block, each tensor of other values; dense experts, no S0.
std::vector<Array> block_arrays() {
  const Dims dims{{"B", 1}, {"T", 2}, {"d", 2}, {"L", 1}, {"P", 1}, {"R", 1}, {"E", 1}, {"F", 1}, {"r", 0}};
  std::vector<Array> arrays;
  double start = 0;
  const auto add = [&](const std::string& name, const TensorSpec& spec) {
    arrays.push_back(tensor(name, shape_of(spec, dims), start += 10));
  };
  for (const TensorSpec& spec : block_core::contract().inputs)
    if (!spec.group.empty() && belongs(spec, dims)) add((spec.differentiable ? "param." : "") + spec.name, spec);
  for (const std::string chunk : {"chunk0.", "chunk1."}) {
    for (const TensorSpec& spec : block_core::contract().inputs) {
      if (spec.group.empty() && spec.name != "S0") add(chunk + spec.name, spec);
      if (!spec.differentiable || !belongs(spec, dims)) continue;
      for (const char* suffix : {"", "_f64"})
        add(chunk + "d" + (spec.group.empty() ? "" : "param.") + spec.name + suffix, spec);
    }
    add(chunk + "z0_f64", input(block_core::contract(), "z0"));
    add(chunk + "g_out", output(block_core::contract(), "out"));
    for (const TensorSpec& spec : block_core::contract().outputs)
      for (const char* suffix : {"", "_f64"}) add(chunk + spec.name + suffix, spec);
  }
  return arrays;
}

// Protects: a chunk's own tensors are its own, parameters are everybody's; the double run's carry is its own; what
// config leaves out is as usual; the factor of lb is that of the stated loss.
TEST(Recorded, ChunksOfABlock) {
  const std::vector<Array> arrays = block_arrays();
  const json entry{{"chunks", 2}, {"cotangent", "sum(out*g_out) + 0.5*lb"}, {"config", {{"n_heads", 1}, {"top_k", 1}}}};
  const std::vector<Recorded> calls = recorded_calls("block.pt", arrays, entry);
  ASSERT_EQ(calls.size(), 2u);
  const Driver& driver = *find_driver("block_core");
  const auto recorded = [&](const std::string& name) {
    return std::find_if(arrays.begin(), arrays.end(), [&](const Array& a) { return a.name == name; })->values;
  };
  for (std::size_t k = 0; k < 2; ++k) {
    const std::string chunk = k == 0 ? "chunk0." : "chunk1.";
    const Case c = calls[k].case_of(driver, DType::float32, {});
    EXPECT_EQ(c.absent, (std::vector<std::string>{"S0"}));
    EXPECT_EQ(c.cotangents, (std::vector<std::string>{"out", "lb"}));
    EXPECT_EQ(c.dims.at("r"), 0);
    EXPECT_EQ(c.dims.at("n_steps"), 1);
    const Problem problem = calls[k].problem_of(driver, c);
    EXPECT_EQ(problem.inputs[0]->values, recorded(chunk + "h"));
    EXPECT_FALSE(problem.inputs[1]);
    EXPECT_EQ(problem.inputs[2]->values, recorded(chunk + "z0"));
    EXPECT_EQ(problem.inputs[5]->values, recorded("param.attn.w_qkv"));
    EXPECT_EQ(problem.scalars.at("damping"), 0.01);
    EXPECT_EQ(problem.cotangents[0]->values, recorded(chunk + "g_out"));
    EXPECT_EQ(problem.cotangents[1]->values, (std::vector<double>{0.5}));
    const Answer answer = calls[k].answer_of(driver, c);
    EXPECT_EQ(answer.outputs[3].values, recorded(chunk + "z"));
    EXPECT_EQ(answer.gradients[5]->values, recorded(chunk + "dparam.attn.w_qkv"));
    EXPECT_FALSE(answer.gradients[2]);
    const Case wide = calls[k].case_of(driver, DType::float64, {});
    EXPECT_EQ(calls[k].problem_of(driver, wide).inputs[2]->values, recorded(chunk + "z0_f64"));
  }
}

}  // namespace
}  // namespace fractus
