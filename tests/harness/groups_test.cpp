// What a kernel's groups of arguments come to: dicts for a Python function, without what is absent, and a call that is
// refused where two sets of tensors that stand for each other are both there, or neither is.
#include <gtest/gtest.h>

#include "contracts/block_core.h"
#include "contracts/moe.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

const std::string groups = FRACTUS_SOURCE "/tests/outside/groups.py:";

// A call with every tensor that the extents ask for.
Call call_of(const Contract& contract, const std::string& form, const Dims& dims, Scalars scalars) {
  Call call{.kernel = contract.kernel, .form = form, .scalars = std::move(scalars)};
  for (const TensorSpec& spec : contract.inputs)
    call.inputs.push_back(belongs(spec, dims) ? std::optional(tensor(spec.name, shape_of(spec, dims), 1))
                                              : std::nullopt);
  return call;
}

Call moe_call(std::int64_t rank, const std::string& form = groups + "says_moe") {
  return call_of(moe::contract(), form,
                 {{"B", 1}, {"T", 2}, {"d", 3}, {"P", 4}, {"E", 5}, {"F", 6}, {"r", rank}, {"top_k", 2}},
                 {{"top_k", 2}, {"kappa", 4}, {"temperature", 2.5}});
}

Call block_call(double dt = 0.125) {
  Call call = call_of(block_core::contract(), groups + "says_block",
                      {{"B", 1}, {"T", 2}, {"d", 6}, {"L", 3}, {"P", 4}, {"R", 2}, {"E", 5}, {"F", 7}, {"r", 0}},
                      {{"n_heads", 2},
                       {"top_k", 1},
                       {"kappa", 3},
                       {"temperature", 1.5},
                       {"n_steps", 2},
                       {"dt", dt},
                       {"damping", 0.25}});
  call.inputs[2].reset();  // z0
  return call;
}

std::string said(const Call& asked) {
  Process process = workshop().spawn_for(workshop().load(asked.kernel, asked.form));
  const Answer answer = call(process, asked, 20s);
  workshop().unload(asked.kernel, asked.form);
  EXPECT_EQ(answer.status, Status::raised);
  return answer.message.substr(0, answer.message.find("; at "));
}

// Protects: a group is one dict under the names of the golden files; dense experts without low rank, and the reverse;
// whole numbers are ints.
TEST(Groups, ReachPythonAsDicts) {
  EXPECT_EQ(said(moe_call(0)),
            "ValueError: h: [1, 2, 3]; phases: [1, 2, 4]; params: expert_phases [5], w1 [5, 3, 6], w2 [5, 6, 3], "
            "b1 [5, 6], b2 [5, 3]; top_k: int 2; kappa: float 4.0; temperature: float 2.5");
  EXPECT_EQ(said(moe_call(2)),
            "ValueError: h: [1, 2, 3]; phases: [1, 2, 4]; params: expert_phases [5], U1 [5, 6, 2], V1 [5, 3, 2], "
            "U2 [5, 3, 2], V2 [5, 6, 2], scale1 [5, 1, 1], scale2 [5, 1, 1], b1 [5, 6], b2 [5, 3]; top_k: int 2; "
            "kappa: float 4.0; temperature: float 2.5");
}

// Protects: an absent optional tensor is None, and config tells what the extents say, under the engine's names.
TEST(Groups, ConfigTellsTheExtents) {
  const std::string text = said(block_call());
  EXPECT_NE(text.find("S0: [1, 6, 6]; z0: NoneType None; params: norm_attn.weight [6]"), std::string::npos) << text;
  EXPECT_NE(text.find("moe.w1 [5, 6, 7]"), std::string::npos) << text;
  EXPECT_EQ(text.find("moe.U1"), std::string::npos) << text;
  EXPECT_NE(text.find("config: n_heads int 2, top_k int 1, kappa float 3.0, temperature float 1.5, n_steps int 2, "
                      "dt float 0.125, damping float 0.25, d_model int 6, d_head int 3, n_levels int 3, "
                      "n_oscillators int 4, coupling_rank int 2, n_experts int 5, expert_d_ff int 7, siren_rank int 0"),
            std::string::npos)
      << text;
}

// Protects: what is as usual is left out of config, as the engine's own does: a form with other defaults is seen.
TEST(Groups, ConfigLeavesOutWhatIsUsual) {
  const std::string text = said(block_call(0.1));
  EXPECT_NE(text.find("n_steps int 2, damping float 0.25,"), std::string::npos) << text;
}

// Protects: the arguments are the contract's, groups and all.
TEST(Groups, OtherArgumentsAreRefused) {
  const std::string trouble = workshop().load("moe", groups + "tensors_apart").trouble;
  EXPECT_NE(trouble.find("wanted the arguments h, phases, params, top_k, kappa, temperature by name"),
            std::string::npos)
      << trouble;
  workshop().unload("moe", groups + "tensors_apart");
}

// Protects: both sets of a pair, a part of one, and neither, are no call.
TEST(Groups, OneSetOfExpertsIsGiven) {
  const auto refused = [](Call asked) {
    try {
      Process process = workshop().spawn();
      call(process, asked, 20s);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Call both = moe_call(2, "moe_looped");
  both.inputs[3] = moe_call(0, "moe_looped").inputs[3];
  EXPECT_EQ(refused(both), "moe: w1 is given beside what stands for it");
  Call part = moe_call(2, "moe_looped");
  part.inputs[5].reset();
  EXPECT_EQ(refused(part), "moe: U1 is missing");
  Call neither = moe_call(0, "moe_looped");
  neither.inputs[3].reset();
  EXPECT_EQ(refused(neither), "moe: w1 is missing");
  Call wide = moe_call(2, "moe_looped");
  wide.inputs[9] = tensor("scale1", {5, 1, 2}, 1);
  EXPECT_NE(refused(wide).find("moe: scale1: wanted (E, 1, 1), got (5, 1, 2)"), std::string::npos) << refused(wide);
}

// Protects: the extents that a literal dimension, a scalar and an absent set stand for.
TEST(Groups, ExtentsOfAContract) {
  const TensorSpec& scale = input(moe::contract(), "scale1");
  EXPECT_EQ(shape_of(scale, {{"E", 5}}), (Shape{5, 1, 1}));
  EXPECT_FALSE(belongs(scale, {{"r", 0}}));
  EXPECT_TRUE(belongs(input(moe::contract(), "w1"), {{"r", 0}}));
  EXPECT_TRUE(may_be_absent(scale) && may_be_absent(input(block_core::contract(), "S0")));
  EXPECT_FALSE(may_be_absent(input(moe::contract(), "b1")));
  Dims known{{"E", 5}};
  EXPECT_TRUE(agrees("E", 5, known) && agrees("3", 3, known) && agrees("F", 7, known));
  EXPECT_FALSE(agrees("E", 6, known) || agrees("3", 4, known) || agrees("F", 6, known));
  settle_sets(moe::contract(), known);
  EXPECT_EQ(known, (Dims{{"E", 5}, {"F", 7}, {"r", 0}}));
}

}  // namespace
}  // namespace fractus
