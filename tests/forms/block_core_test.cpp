// Every form of block_core against the reference in float64, on a few dozen small calls; what is refused, and each
// wrong form on a call where its fault shows and on one where it does not.
#include "contracts/block_core.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/forms/block_calls.h"
#include "tests/forms/complaint.h"

namespace fractus::block_core {
namespace {

using at::Tensor;
using block_calls::kernel;
using kernel_calls::broken, kernel_calls::Case;

const std::vector<std::string> right_forms{"block_plain", "block_chunked", "block_ckpt"};

// Protects: chunked attention, native norms, fused oscillators and gathered experts together are the block of the
// reference, with recompute and without, on every case.
TEST(BlockCore, FormsAgree) {
  for (const std::string& name : right_forms)
    for (const Case& c : kernel().cases)
      EXPECT_EQ(broken(kernel(), kernel().form(name), c), "") << name << ", " << c.name;
}

// Protects: any block of tokens, the last one shorter or not.
TEST(BlockCore, TakesAnyBlock) {
  for (const char* name : {"block_chunked", "block_ckpt"}) {
    Form form = kernel().form(name);
    for (const std::int64_t block : {1, 2, 5, 6}) {
      form.settings["block"] = block;
      EXPECT_EQ(broken(kernel(), form, kernel().named("plain")), "") << name << ", " << block;
    }
  }
}

// Protects: two chunks in a row by the carry see what one chunk of both does, where there is one level: the carry is
// the mean over levels, so with more the second chunk starts from another state, which the second half tells.
TEST(BlockCore, CarryContinues) {
  for (const std::string& name : right_forms)
    for (const std::int64_t levels : {1, 2}) {
      Case whole = kernel().named("plain");
      whole.dims["L"] = levels, whole.dims["T"] = 6, whole.dims["E"] = 1, whole.dims["top_k"] = 1;
      Case half = whole;
      half.dims["T"] = 3;
      const Tensors in = kernel_calls::made(kernel(), whole, 3);
      const auto run = [&](const Case& c, const Tensors& given) {
        return kernel_calls::forward(kernel(), kernel().form(name), c, given).outputs;
      };
      Tensors first = in, second = in;
      first[0] = in[0].narrow(1, 0, 3), second[0] = in[0].narrow(1, 3, 3);
      const Tensors all = run(whole, in), before = run(half, first);
      second[1] = before[2], second[2] = before[3];
      const Tensors after = run(half, second);
      EXPECT_TRUE(at::allclose(all[0].narrow(1, 0, 3), before[0], 1e-10, 1e-10)) << name;
      EXPECT_EQ(at::allclose(all[0].narrow(1, 3, 3), after[0], 1e-10, 1e-10), levels == 1) << name << levels;
      EXPECT_TRUE(levels == 2 || at::allclose(all[2], after[2], 1e-10, 1e-10)) << name;
    }
}

// Protects: what lies outside of S0's blocks is ignored, whatever it is.
TEST(BlockCore, IgnoresWhatIsOutsideOfTheBlocks) {
  const Case& c = kernel().named("plain");
  for (const std::string& name : right_forms) {
    Tensors in = kernel_calls::made(kernel(), c, 2);
    const Tensors clean = kernel_calls::forward(kernel(), kernel().form(name), c, in).outputs;
    in[1] = in[1].clone();
    in[1].narrow(1, 0, 4).narrow(2, 4, 4).fill_(NAN);
    const Tensors other = kernel_calls::forward(kernel(), kernel().form(name), c, in).outputs;
    for (std::size_t o = 0; o < clean.size(); ++o) EXPECT_TRUE(at::equal(clean[o], other[o])) << name << ", " << o;
    EXPECT_TRUE((clean[2].narrow(1, 0, 4).narrow(2, 4, 4) == 0).all().item<bool>()) << name;
  }
}

// Protects: what is refused names the argument, what was wanted and the row of the whole batch.
TEST(BlockCore, RefusesBadInput) {
  for (const std::string& name : right_forms) {
    const auto complaint = [&](const std::string& argument, double value, void (*spoil)(Tensors&) = nullptr) {
      const Case& c = kernel().named("plain");
      Tensors in = kernel_calls::made(kernel(), c, 2);
      if (spoil != nullptr) spoil(in);
      Scalars scalars = c.scalars;
      for (const char* whole : {"n_heads", "top_k", "n_steps"}) scalars[whole] = static_cast<double>(c.dims.at(whole));
      if (!argument.empty()) scalars[argument] = value;
      return complaint_of<std::invalid_argument>(
          [&] { kernel().form(name).run(in, scalars, kernel().form(name).settings); });
    };
    EXPECT_EQ(complaint("", 0), "");
    EXPECT_EQ(complaint("n_heads", 3), "block_core: n_heads: wanted a divisor of the width 8, got 3");
    EXPECT_EQ(complaint("n_heads", 0), "block_core: n_heads: wanted a divisor of the width 8, got 0");
    EXPECT_EQ(complaint("n_steps", 0.5), "block_core: n_steps: wanted a whole number of 0 or more, got 0.5");
    EXPECT_EQ(complaint("top_k", 6), "block_core: top_k: wanted a whole number from 1 to 5, got 6");
    EXPECT_EQ(complaint("dt", NAN), "block_core: dt: wanted a finite number, got nan");
    EXPECT_EQ(complaint("temperature", 0), "block_core: temperature: wanted a finite number above 0, got 0");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0] = in[0].narrow(1, 0, 0); }),
              "block_core: h: wanted at least one token, got (2, 0, 8)");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0][1][2][3] = NAN; }),
              "block_core: h: wanted finite values, got one that is not in row 8");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[9][5][0] = INFINITY; }),
              "block_core: attn.w_out: wanted finite values, got one that is not in row 5");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[13][1] = INFINITY; }),
              "block_core: kuramoto.omega: wanted finite values, got one that is not in place 1");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[5] = in[5].narrow(0, 0, 2); }),
              "block_core: attn.w_qkv: wanted (3, d, d), got (2, 8, 8) of Double on cpu");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[28] = Tensor(); }),
              "block_core: moe.b2 is missing; wanted a tensor (E, d)");
  }
}

// Protects: each fault shows where its summary says and not elsewhere; no wrong form is left out.
TEST(BlockCore, WrongFormsAreWrongWhereTheySay) {
  std::vector<kernel_calls::Row> rows{
      {"wrong_layernorm_eps_1e_6", "small_rows", ""},
      {"wrong_layernorm_without_eps", "small_rows", ""},
      {"wrong_layernorm_unbiased", "plain", ""},
      {"wrong_layernorm_without_mean", "plain", ""},
      {"wrong_layernorm_eps_outside", "plain", ""},
      {"wrong_layernorm_variance_detached", "plain", "no_gradients"},
      {"wrong_layernorm_bias_lost", "plain", ""},
      {"wrong_feature_elu_alone", "plain", ""},
      {"wrong_feature_relu", "plain", ""},
      {"wrong_feature_softplus", "plain", ""},
      {"wrong_feature_bfloat16", "plain", ""},
      {"wrong_feature_gradient_of_relu", "plain", "no_gradients"},
      {"wrong_level_offset_on_v", "plain", ""},
      {"wrong_levels_alike", "plain", "one_level"},
      {"wrong_logits_as_shares", "plain", ""},
      {"wrong_level_gradient_lost", "plain", "one_level"},
      {"wrong_token_does_not_see_itself", "plain", ""},
      {"wrong_token_sees_the_next", "plain", "one_token"},
      {"wrong_offsets_not_squared", "plain", "one_level"},
      {"wrong_offset_of_first_level", "plain", "one_level"},
      {"wrong_S0_ignored", "plain", "no_carry"},
      {"wrong_z0_ignored", "plain", "no_carry"},
      {"wrong_S0_transposed", "plain", "no_carry"},
      {"wrong_off_diagonal_read", "plain", "one_head"},
      {"wrong_b_out_lost", "plain", ""},
      {"wrong_b_qkv_lost", "plain", ""},
      {"wrong_query_and_key_swapped", "plain", ""},
      {"wrong_w_out_transposed", "plain", ""},
      {"wrong_w_qkv_bfloat16", "plain", ""},
      {"wrong_carry_not_detached", "plain", "no_gradients"},
      {"wrong_carry_summed_over_levels", "plain", "one_level"},
      {"wrong_carry_of_level_0", "plain", "one_level"},
      {"wrong_z_of_level_0", "plain", "one_level"},
      {"wrong_state_transposed", "plain", ""},
      {"wrong_state_bfloat16", "plain", ""},
      {"wrong_state_advanced_twice", "plain", ""},
      {"wrong_off_diagonal_kept", "plain", "one_head"},
      {"wrong_states_of_heads_alike", "plain", "one_head"},
      {"wrong_routed_by_first_token", "plain", "one_token"},
      {"wrong_routed_per_token", "plain", "one_token"},
      {"wrong_routed_by_last_row", "plain", "one_row"},
      {"wrong_route_detached", "plain", "no_gradients"},
      {"wrong_theta_without_norm", "plain", ""},
      {"wrong_theta_of_h", "plain", ""},
      {"wrong_moe_norm_before_attention", "plain", ""},
      {"wrong_moe_sees_norm_kur", "plain", ""},
      {"wrong_moe_without_norm", "plain", ""},
      {"wrong_usual_damping", "plain", "usual"},
      {"wrong_usual_dt", "plain", "usual"},
      {"wrong_usual_steps", "plain", "usual"},
      {"wrong_usual_temperature", "plain", "usual"},
      {"wrong_top_1", "plain", "top_1"},
      {"wrong_one_head", "plain", "one_head"},
      {"wrong_theta_attached", "plain", "no_gradients"},
      {"wrong_balance_by_tokens", "plain", "one_token"},
      {"wrong_balance_detached", "plain", "no_gradients"},
      {"wrong_residual_lost", "plain", ""},
      {"wrong_recompute_from_next_state", "plain", "no_gradients"},
      {"wrong_recompute_of_rounded_h", "plain", "no_gradients"},
      {"wrong_recompute_without_balance", "plain", "no_gradients"},
      {"wrong_recompute_without_dh", "plain", "no_gradients"},
      {"wrong_recompute_of_first_cotangent", "plain", "one_token"},
  };
  for (const kernel_calls::Row& row : kernel_calls::common_rows("block")) rows.push_back(row);
  for (const std::string& text : kernel_calls::complaints(kernel(), rows, {"wrong_block_rerun_differs"}))
    ADD_FAILURE() << text;
}

}  // namespace
}  // namespace fractus::block_core
