// Every form of moe against the reference in float64, on a few dozen small calls; what is refused, and each wrong form
// on a call where its fault shows and on one where it does not.
#include "contracts/moe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/forms/complaint.h"
#include "tests/forms/kernel_calls.h"

namespace fractus::moe {
namespace {

using at::Tensor;
using kernel_calls::broken, kernel_calls::Case, kernel_calls::Kernel, kernel_calls::Named;

Dims dims(std::int64_t batch, std::int64_t tokens, std::int64_t width, std::int64_t experts, std::int64_t units,
          std::int64_t rank, std::int64_t top_k) {
  return {{"B", batch},   {"T", tokens}, {"d", width}, {"P", 4},
          {"E", experts}, {"F", units},  {"r", rank},  {"top_k", top_k}};
}

const Scalars usual{{"kappa", 4}, {"temperature", 2.5}};
const Dims low = dims(2, 5, 4, 6, 7, 3, 2), dense = dims(2, 5, 4, 6, 7, 0, 2);

void evenly(Named& in) {
  const std::int64_t count = in["expert_phases"].size(0);
  in["expert_phases"] = at::arange(count, at::kDouble) * (2 * M_PI / static_cast<double>(count)) + 0.1;
  in["phases"] *= 2;
}
void strided(Named& in) {
  evenly(in);
  in["h"] = in["h"].transpose(0, 1).contiguous().transpose(0, 1);
}
void one_angle(Named& in) {  // all tokens choose the same experts
  evenly(in);
  in["phases"].fill_(1);
}
void near_a_midpoint(Named& in) {
  in["expert_phases"] = at::arange(in["expert_phases"].size(0), at::kDouble);
  in["phases"].fill_(0.5 - 1e-5);
}
void no_bias(Named& in) { evenly(in), in["b1"].zero_(), in["b2"].zero_(); }
void unit_scales(Named& in) { evenly(in), in["scale1"].fill_(1), in["scale2"].fill_(1); }
void equal_weights(Named& in) {  // exactly two experts, symmetric about theta
  in["expert_phases"][0] = 0.5, in["expert_phases"][1] = -0.5;
  in["phases"].zero_();
}

const Kernel& kernel() {
  static const Kernel k{
      .contract = &contract(),
      .reference = "moe_looped",
      .cases =
          {
              {"plain", low, usual, at::kDouble, evenly},
              {"float32", low, usual, at::kFloat, evenly},
              {"dense", dense, usual, at::kDouble, evenly},
              {"dense_float32", dense, usual, at::kFloat, evenly},
              {"live_experts", dims(1, 9, 4, 128, 3, 2, 2), usual, at::kDouble, evenly},
              {"one_expert", dims(2, 3, 4, 1, 5, 2, 1), usual},
              {"top_1", dims(2, 5, 4, 6, 7, 3, 1), usual, at::kDouble, evenly},
              {"all_chosen", dims(2, 5, 4, 3, 7, 3, 3), usual, at::kDouble, evenly},
              {"one_rank", dims(2, 5, 4, 6, 7, 1, 2), usual, at::kDouble, evenly},
              {"one_unit", dims(2, 5, 4, 6, 1, 3, 2), usual, at::kDouble, evenly},
              {"one_token", dims(1, 1, 4, 6, 7, 3, 2), usual, at::kDouble, evenly},
              {"many_tokens", dims(2, 70, 3, 6, 4, 2, 2), usual, at::kDouble, evenly},
              {"strided", dims(3, 5, 4, 6, 7, 3, 2), usual, at::kDouble, strided},
              {"one_angle", low, usual, at::kDouble, one_angle},
              {"near_a_midpoint", dims(1, 4, 4, 5, 7, 3, 1), usual, at::kDouble, near_a_midpoint},
              {"no_bias", low, usual, at::kDouble, no_bias},
              {"unit_scales", low, usual, at::kDouble, unit_scales},
              {"equal_weights", dims(1, 4, 4, 2, 7, 3, 2), usual, at::kDouble, equal_weights},
              {"times_minus_3", low, usual, at::kDouble, evenly, {}, -3},
              {"no_gradients", low, usual, at::kDouble, evenly, {}, 1, false},
              {"computed", low, usual, at::kDouble, evenly, {}, 1, true, true},
              {"no_grad_mode", low, usual, at::kDouble, evenly, {}, 1, true, false, true},
              {"crowded", low, usual, at::kDouble, evenly, {}, 1, true, false, false, true},
              {"crowded_without_gradients", low, usual, at::kDouble, evenly, {}, 1, false, false, false, true},
              {"two_threads", low, usual, at::kDouble, evenly, {}, 1, true, false, false, false, 2},
          },
      .settled = [](const Tensors& y) { return y; }};
  return k;
}

const std::vector<std::string> right_forms{"moe_looped", "moe_dense_gather", "moe_gather_first"};

// Protects: both paths of production, dense and low rank, agree with the loop over experts on every case.
TEST(Moe, FormsAgree) {
  for (const std::string& name : right_forms)
    for (const Case& c : kernel().cases)
      EXPECT_EQ(broken(kernel(), kernel().form(name), c), "") << name << ", " << c.name;
}

// Protects: any block of tokens, the last one shorter or not.
TEST(Moe, TakesAnyBlock) {
  Form form = kernel().form("moe_gather_first");
  for (const std::int64_t block : {1, 3, 10, 11}) {
    form.settings["block"] = block;
    EXPECT_EQ(broken(kernel(), form, kernel().named("plain")), "") << block;
  }
}

// Protects: an expert that nobody chose has a gradient of 0 to the bit, not of something small.
TEST(Moe, UnchosenExpertsHaveNoGradient) {
  const Case& c = kernel().named("one_angle");
  for (const std::string& name : right_forms) {
    const auto under = kernel_calls::forward(kernel(), kernel().form(name), c, kernel_calls::made(kernel(), c, 2));
    const Tensors gradients = under.gradients(kernel(), c);
    for (const std::size_t i : {5, 8, 9, 12}) {
      const Tensor by_expert = gradients[i].abs().flatten(1).amax(1);
      EXPECT_EQ((by_expert > 0).sum().item<std::int64_t>(), 2) << name << ", " << contract().inputs[i].name;
    }
  }
}

// Protects: the reference, against one token, one expert and one unit written out in numbers.
TEST(Moe, ReferenceIsTheDefinition) {
  const auto number = [](double x, at::IntArrayRef shape) { return at::full(shape, x, at::kDouble); };
  const double h = 0.7, w1 = 1.3, b1 = 0.2, w2 = -0.6, b2 = 0.1, x = h * w1 + b1;
  const double gelu = x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  Tensors in(13);
  in[0] = number(h, {1, 1, 1}), in[1] = number(0.4, {1, 1, 1}), in[2] = number(0, {1});
  in[11] = number(b1, {1, 1}), in[12] = number(b2, {1, 1});
  const Scalars scalars{{"top_k", 1}, {"kappa", 4}, {"temperature", 2.5}};
  const auto out = [&] { return kernel().form("moe_looped").run(in, scalars, {})[0].item<double>(); };
  in[3] = number(w1, {1, 1, 1}), in[4] = number(w2, {1, 1, 1});
  EXPECT_NEAR(out(), gelu * w2 + b2, 1e-15);
  in[3] = in[4] = Tensor();
  in[5] = number(2, {1, 1, 1}), in[6] = number(w1 / 2 / 3, {1, 1, 1}), in[9] = number(3, {1, 1, 1});
  in[7] = number(-5, {1, 1, 1}), in[8] = number(w2 / -5 / 7, {1, 1, 1}), in[10] = number(7, {1, 1, 1});
  EXPECT_NEAR(out(), gelu * w2 + b2, 1e-15);
}

// Protects: what is refused names the argument, what was wanted and the row of the whole batch or the expert.
TEST(Moe, RefusesBadInput) {
  for (const std::string& name : right_forms) {
    const auto complaint = [&](const std::string& argument, double value, void (*spoil)(Tensors&) = nullptr) {
      Tensors in = kernel_calls::made(kernel(), kernel().named("plain"), 2);
      if (spoil != nullptr) spoil(in);
      Scalars scalars{{"top_k", 2}, {"kappa", 4}, {"temperature", 2.5}};
      if (!argument.empty()) scalars[argument] = value;
      return complaint_of<std::invalid_argument>(
          [&] { kernel().form(name).run(in, scalars, kernel().form(name).settings); });
    };
    EXPECT_EQ(complaint("", 0), "");
    EXPECT_EQ(complaint("top_k", 7), "moe: top_k: wanted a whole number from 1 to 6, got 7");
    EXPECT_EQ(complaint("temperature", -1), "moe: temperature: wanted a finite number above 0, got -1");
    EXPECT_EQ(complaint("kappa", 101), "moe: kappa: wanted kappa / temperature of at most 40, got 101 / 2.5");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0][1][2][3] = NAN; }),
              "moe: h: wanted finite values, got one that is not in row 7");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[1][0][4][0] = INFINITY; }),
              "moe: phases: wanted finite values, got one that is not in row 4");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[7][4][0][0] = NAN; }),
              "moe: U2: wanted finite values, got one that is not in expert 4");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[2] = in[2].narrow(0, 0, 5); }),
              "moe: U1: wanted E = 5 as in expert_phases, got (6, 7, 3) of Double on cpu");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[6] = Tensor(); }), "moe: V1 is missing; wanted a tensor (E, d, r)");
    EXPECT_EQ(complaint("", 0,
                        [](Tensors& in) {
                          for (std::size_t i = 5; i < 11; ++i) in[i] = Tensor();
                        }),
              "moe: w1 is missing; wanted a tensor (E, d, F)");
    EXPECT_EQ(complaint("", 0,
                        [](Tensors& in) {
                          in[3] = at::ones({6, 4, 7}, at::kDouble);
                        }),
              "moe: w1: wanted none where r = 3 as in U1, got (6, 4, 7) of Double on cpu");
    EXPECT_EQ(complaint("", 0,
                        [](Tensors& in) {
                          in[9] = in[9].flatten().view({6, 1});
                        }),
              "moe: scale1: wanted 3 dimensions (E, 1, 1), got (6, 1) of Double on cpu");
    EXPECT_EQ(complaint("", 0,
                        [](Tensors& in) {
                          in[9] = at::ones({6, 1, 2}, at::kDouble);
                        }),
              "moe: scale1: wanted (E, 1, 1), got (6, 1, 2) of Double on cpu");
  }
}

// Protects: each fault shows where its summary says and not elsewhere; no wrong form is left out.
TEST(Moe, WrongFormsAreWrongWhereTheySay) {
  std::vector<kernel_calls::Row> rows{
      {"wrong_gelu_erf", "plain", ""},
      {"wrong_gelu_constant", "plain", ""},
      {"wrong_gelu_by_sigmoid", "plain", ""},
      {"wrong_relu", "plain", ""},
      {"wrong_gelu_cut_above_3", "plain", ""},
      {"wrong_activation_bfloat16", "plain", ""},
      {"wrong_activation_float32", "plain", "float32"},
      {"wrong_gelu_gradient_by_sigmoid", "plain", "no_gradients"},
      {"wrong_gelu_gradient_of_relu", "plain", "no_gradients"},
      {"wrong_scale1_forgotten", "plain", "dense"},
      {"wrong_scale2_forgotten", "plain", "dense"},
      {"wrong_b1_forgotten", "plain", ""},
      {"wrong_b2_forgotten", "plain", ""},
      {"wrong_V1_and_U2_swapped", "plain", "dense"},
      {"wrong_U1_and_V2_swapped", "plain", "dense"},
      {"wrong_last_rank_lost", "plain", "one_rank"},
      {"wrong_last_unit_lost", "plain", ""},
      {"wrong_last_expert_has_the_bias_before", "plain", "one_expert"},
      {"wrong_h_bfloat16", "plain", ""},
      {"wrong_first_layer_bfloat16", "plain", ""},
      {"wrong_b1_gradient_twice", "plain", "no_gradients"},
      {"wrong_scales_without_gradient", "plain", "dense"},
      {"wrong_second_layer_without_gradient", "plain", "no_gradients"},
      {"wrong_b2_without_gradient", "plain", "no_gradients"},
      {"wrong_choice_of_first_token", "plain", "one_token"},
      {"wrong_smallest_chosen", "plain", "all_chosen"},
      {"wrong_next_expert_on_small_gap", "near_a_midpoint", "all_chosen"},
      {"wrong_raw_gates_as_weights", "plain", "all_chosen"},
      {"wrong_slot_weights_reversed", "plain", "top_1"},
      {"wrong_equal_weights", "plain", "top_1"},
      {"wrong_router_gradient_dropped", "plain", "top_1"},
      {"wrong_weights_bfloat16", "plain", "top_1"},
      {"wrong_capacity_limit", "one_angle", "one_expert"},
      {"wrong_second_slot_dropped", "plain", "top_1"},
      {"wrong_last_token_dropped", "plain", "one_token"},
      {"wrong_little_of_all", "plain", "float32"},
      {"wrong_b2_averaged_over_chosen", "plain", "top_1"},
      {"wrong_b2_unweighted", "plain", "top_1"},
      {"wrong_added_in_bfloat16", "plain", ""},
      {"wrong_residual_added", "plain", ""},
      {"wrong_weights_squared", "plain", "top_1"},
      {"wrong_balance_halved", "plain", "one_expert"},
      {"wrong_balance_detached", "plain", "no_gradients"},
  };
  for (const kernel_calls::Row& row : kernel_calls::common_rows("moe")) rows.push_back(row);
  for (const std::string& text : kernel_calls::complaints(kernel(), rows, {"wrong_moe_rerun_differs"}))
    ADD_FAILURE() << text;
}

}  // namespace
}  // namespace fractus::moe
