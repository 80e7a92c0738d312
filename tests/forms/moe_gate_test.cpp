// Every form of moe_gate against the reference in float64, on a few dozen small calls; choices at ties, what is
// refused, and each wrong form on a call where its fault shows and on one where it does not.
#include "contracts/moe_gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/forms/complaint.h"
#include "tests/forms/kernel_calls.h"

namespace fractus::moe_gate {
namespace {

using at::Tensor;
using kernel_calls::broken, kernel_calls::Case, kernel_calls::Kernel, kernel_calls::Named;

constexpr double pi = std::numbers::pi;

Dims dims(std::int64_t batch, std::int64_t tokens, std::int64_t oscillators, std::int64_t experts, std::int64_t top_k) {
  return {{"B", batch}, {"T", tokens}, {"P", oscillators}, {"E", experts}, {"top_k", top_k}};
}

const Scalars usual{{"kappa", 4}, {"temperature", 2.5}}, steep{{"kappa", 30}, {"temperature", 1}};

// All experts within half a radian of 0, all tokens opposite.
void opposite(Named& in) {
  in["expert_phases"] = in["expert_phases"].tanh() / 2;
  in["phases"] = in["phases"].tanh() / 100 + pi;
}

// The sum of the gates is e^-c and a little, for c about 20.
void small_sum(Named& in) {
  in["expert_phases"] = at::arange(in["expert_phases"].size(0), at::kDouble) / 10;
  in["phases"] = in["phases"].tanh() / 1000 + pi;
}

void near_an_expert(Named& in) {
  in["expert_phases"] = at::arange(in["expert_phases"].size(0), at::kDouble);
  in["phases"].zero_();
  in["phases"] += at::arange(in["phases"].size(1), at::kDouble).unsqueeze(1) / 100 + 1.003;
}

// Theta 1e-5 beside the midpoint of the first two experts.
void near_a_midpoint(Named& in) {
  in["expert_phases"] = at::arange(in["expert_phases"].size(0), at::kDouble);
  in["phases"].fill_(0.5 - 1e-5);
}

void strided(Named& in) { in["phases"] = in["phases"].transpose(0, 1).contiguous().transpose(0, 1); }
void right_half_plane(Named& in) { in["phases"] = in["phases"].tanh() / 4; }
void all_alike(Named& in) { in["phases"] = in["phases"].select(2, 0).unsqueeze(2).expand(in["phases"].sizes()) * 1; }
void ascending(Named& in) {  // the chosen experts stand in their own order
  in["expert_phases"] = at::arange(in["expert_phases"].size(0), at::kDouble) / 4;
  in["phases"] = in["phases"].tanh() / 20;
}
void spread(Named& in) { in["phases"] *= 2; }
void evenly(Named& in) {
  const std::int64_t count = in["expert_phases"].size(0);
  in["expert_phases"] = at::arange(count, at::kDouble) * (2 * pi / static_cast<double>(count));
}
void experts_at_0(Named& in) { in["expert_phases"].zero_(); }

const Kernel& kernel() {
  static const Kernel k{
      .contract = &contract(),
      .reference = "gate_plain",
      .cases =
          {
              {"plain", dims(2, 5, 4, 6, 2), usual, at::kDouble, spread},
              {"float32", dims(2, 5, 4, 6, 2), usual, at::kFloat},
              {"temperature_1", dims(2, 5, 4, 6, 2), {{"kappa", 3}, {"temperature", 1}}},
              {"steep", dims(2, 5, 4, 6, 2), steep},
              {"flat", dims(2, 5, 4, 6, 2), {{"kappa", 0}, {"temperature", 1}}, at::kDouble, ascending},
              {"one_expert", dims(1, 3, 4, 1, 1), usual},
              {"one_oscillator", dims(1, 3, 1, 6, 2), usual},
              {"one_token", dims(1, 1, 4, 6, 2), usual},
              {"one_row", dims(1, 5, 4, 6, 2), usual},
              {"top_1", dims(2, 5, 4, 6, 1), usual},
              {"all_chosen", dims(2, 5, 4, 3, 3), usual},
              {"all_chosen_ascending", dims(2, 5, 4, 3, 3), usual, at::kDouble, ascending},
              {"many_experts", dims(1, 40, 4, 128, 3), usual, at::kDouble, evenly},
              {"opposite", dims(1, 4, 4, 5, 5), {{"kappa", 30}, {"temperature", 1}}, at::kDouble, opposite},
              {"small_sum", dims(1, 4, 4, 3, 1), {{"kappa", 21}, {"temperature", 1}}, at::kDouble, small_sum},
              {"near_an_expert", dims(1, 4, 4, 5, 2), usual, at::kDouble, near_an_expert},
              {"near_a_midpoint", dims(1, 4, 4, 5, 1), usual, at::kDouble, near_a_midpoint},
              {"strided", dims(3, 5, 4, 6, 2), usual, at::kDouble, strided},
              {"right_half_plane", dims(2, 5, 4, 6, 2), usual, at::kDouble, right_half_plane},
              {"all_alike", dims(2, 5, 4, 6, 2), usual, at::kDouble, all_alike},
              {"ascending", dims(2, 5, 4, 6, 2), usual, at::kDouble, ascending},
              {"experts_at_0", dims(2, 5, 4, 6, 6), usual, at::kDouble, experts_at_0},
              {"times_minus_3", dims(2, 5, 4, 6, 2), usual, at::kDouble, nullptr, {}, -3},
              {"no_gradients", dims(2, 5, 4, 6, 2), usual, at::kDouble, nullptr, {}, 1, false},
              {"computed", dims(2, 5, 4, 6, 2), usual, at::kDouble, nullptr, {}, 1, true, true},
              {"no_grad_mode", dims(2, 5, 4, 6, 2), usual, at::kDouble, nullptr, {}, 1, true, false, true},
              {"crowded", dims(2, 5, 4, 6, 2), usual, at::kDouble, nullptr, {}, 1, true, false, false, true},
              {"crowded_without_gradients",
               dims(2, 5, 4, 6, 2),
               usual,
               at::kDouble,
               nullptr,
               {},
               1,
               false,
               false,
               false,
               true},
              {"two_threads", dims(2, 5, 4, 6, 2), usual, at::kDouble, nullptr, {}, 1, true, false, false, false, 2},
          },
      // A selection in the order of the experts, and its weights along with it.
      .settled = [](const Tensors& y) -> Tensors {
        const auto [index, order] = y[1].sort(-1);
        return {y[0], index, y[2].gather(-1, order), y[3]};
      }};
  return k;
}

// Protects: forms of another arithmetic agree with the definition in values, gradients and manners on every case.
TEST(MoeGate, FormsAgree) {
  for (const char* name : {"gate_plain", "gate_cosine", "gate_rotated"})
    for (const Case& c : kernel().cases)
      EXPECT_EQ(broken(kernel(), kernel().form(name), c), "") << name << ", " << c.name;
}

// Protects: the reference, against the definition written out in numbers; the forms above agree with it.
TEST(MoeGate, ReferenceIsTheDefinition) {
  const Case& c = kernel().named("plain");
  const Tensors in = kernel_calls::made(kernel(), c, 9),
                y = kernel().form("gate_plain").run(in, {{"kappa", 4}, {"temperature", 2.5}, {"top_k", 2}}, {});
  double balance = 0;
  std::vector<double> mean(6, 0.0);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 5; ++t) {
      double sine = 0, cosine = 0, sum = 0;
      for (std::int64_t p = 0; p < 4; ++p) {
        const double phase = in[0][b][t][p].item<double>();
        sine += std::sin(phase), cosine += std::cos(phase);
      }
      std::vector<double> g;
      for (std::int64_t e = 0; e < 6; ++e)
        g.push_back(std::exp(1.6 * std::cos(std::atan2(sine, cosine) - in[1][e].item<double>()))), sum += g.back();
      for (std::size_t e = 0; e < 6; ++e) {
        EXPECT_NEAR(y[0][b][t][static_cast<std::int64_t>(e)].item<double>(), g[e] / sum, 1e-14);
        mean[e] += g[e] / sum / 10;
      }
      const auto first = y[1][b][t][0].item<std::int64_t>(), second = y[1][b][t][1].item<std::int64_t>();
      for (std::size_t e = 0; e < 6; ++e)
        if (static_cast<std::int64_t>(e) != first && static_cast<std::int64_t>(e) != second) {
          EXPECT_LE(g[e], std::min(g[static_cast<std::size_t>(first)], g[static_cast<std::size_t>(second)]));
        }
      const double of_first = g[static_cast<std::size_t>(first)], of_second = g[static_cast<std::size_t>(second)];
      EXPECT_NEAR(y[2][b][t][0].item<double>(), of_first / (of_first + of_second), 1e-14);
    }
  for (const double m : mean) balance += 6 * (m - 1.0 / 6) * (m - 1.0 / 6);
  EXPECT_NEAR(y[3].item<double>(), balance, 1e-14);
}

// Protects: where oscillators cancel, theta is anything, but gates are shares and no gradient is NaN.
TEST(MoeGate, TakesOscillatorsThatCancel) {
  const double nothing = 0;
  for (const char* name : {"gate_cosine", "gate_rotated"}) {
    const Tensor phases = at::full({1, 1, 2}, nothing, at::kDouble);
    phases[0][0][1] = pi;
    const Tensors y = kernel().form(name).run({phases.requires_grad_(), at::arange(4, at::kDouble)},
                                              {{"kappa", 4}, {"temperature", 1}, {"top_k", 2}}, {});
    EXPECT_NEAR(y[0].sum().item<double>(), 1, 1e-12) << name;
    EXPECT_NEAR(y[2].sum().item<double>(), 1, 1e-12) << name;
    EXPECT_NE(y[1].flatten()[0].item<std::int64_t>(), y[1].flatten()[1].item<std::int64_t>()) << name;
  }
}

// Protects: what is refused names the argument, what was wanted and the row of the whole batch.
TEST(MoeGate, RefusesBadInput) {
  for (const char* name : {"gate_plain", "gate_cosine", "gate_rotated"}) {
    const auto complaint = [&](const std::string& argument, double value, void (*spoil)(Tensors&) = nullptr) {
      Tensors in = kernel_calls::made(kernel(), kernel().named("plain"), 2);
      if (spoil != nullptr) spoil(in);
      Scalars scalars{{"kappa", 4}, {"temperature", 2.5}, {"top_k", 2}};
      if (!argument.empty()) scalars[argument] = value;
      return complaint_of<std::invalid_argument>([&] { kernel().form(name).run(in, scalars, {}); });
    };
    EXPECT_EQ(complaint("", 0), "");
    EXPECT_EQ(complaint("top_k", 0), "moe_gate: top_k: wanted a whole number from 1 to 6, got 0");
    EXPECT_EQ(complaint("top_k", 7), "moe_gate: top_k: wanted a whole number from 1 to 6, got 7");
    EXPECT_EQ(complaint("top_k", 1.5), "moe_gate: top_k: wanted a whole number from 1 to 6, got 1.5");
    EXPECT_EQ(complaint("temperature", 0), "moe_gate: temperature: wanted a finite number above 0, got 0");
    EXPECT_EQ(complaint("kappa", 101), "moe_gate: kappa: wanted kappa / temperature of at most 40, got 101 / 2.5");
    EXPECT_EQ(complaint("kappa", NAN), "moe_gate: kappa: wanted a finite number, got nan");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0][1][2][3] = NAN; }),
              "moe_gate: phases: wanted finite values, got one that is not in row 7");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[1][4] = INFINITY; }),
              "moe_gate: expert_phases: wanted finite values, got one that is not in expert 4");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0] = in[0].narrow(2, 0, 0); }),
              "moe_gate: phases: wanted at least one oscillator, got (2, 5, 0)");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[1] = in[1].narrow(0, 0, 0); }),
              "moe_gate: expert_phases: wanted at least one expert, got none");
  }
}

// Protects: each fault shows where its summary says and not elsewhere; no wrong form is left out.
TEST(MoeGate, WrongFormsAreWrongWhereTheySay) {
  std::vector<kernel_calls::Row> rows{
      {"wrong_atan2_swapped", "plain", ""},
      {"wrong_half_plane", "plain", "right_half_plane"},
      {"wrong_mean_of_angles", "plain", "all_alike"},
      {"wrong_last_oscillator_lost", "plain", "one_oscillator"},
      {"wrong_sine_bfloat16", "plain", "one_expert"},
      {"wrong_gradient_of_plain_mean", "plain", "no_gradients"},
      {"wrong_mean_angle_float32", "plain", "float32"},
      {"wrong_kappa_times_temperature", "plain", "temperature_1"},
      {"wrong_temperature_ignored", "plain", "temperature_1"},
      {"wrong_phases_added", "plain", "one_expert"},
      {"wrong_steepness_float32", "plain", "temperature_1"},
      {"wrong_cosine_by_parabola", "near_an_expert", "opposite"},
      {"wrong_never_equal_shares", "opposite", "plain"},
      {"wrong_cut_1e_8", "small_sum", "plain"},
      {"wrong_epsilon_in_the_sum", "plain", "float32"},
      {"wrong_normaliser_detached", "plain", "no_gradients"},
      {"wrong_gates_float16", "plain", "one_expert"},
      {"wrong_balance_lacks_factor", "plain", "one_expert"},
      {"wrong_balance_detached", "plain", "no_gradients"},
      {"wrong_balance_of_rows", "plain", "one_row"},
      {"wrong_balance_of_first_token", "plain", "one_token"},
      {"wrong_one_expert_is_unbalanced", "one_expert", "plain"},
      {"wrong_next_expert_on_small_gap", "near_a_midpoint", "all_chosen"},
      {"wrong_smallest_chosen", "plain", "one_expert"},
      {"wrong_last_expert_never", "many_experts", "all_chosen"},
      {"wrong_first_64_experts_alone", "many_experts", "plain"},
      {"wrong_tie_chosen_twice", "experts_at_0", "plain"},
      {"wrong_next_expert", "plain", "one_expert"},
      {"wrong_choice_of_first_token", "plain", "one_token"},
      {"wrong_least_expert_in_last_token", "plain", "one_expert"},
      {"wrong_weights_not_renormalised", "plain", "all_chosen"},
      {"wrong_weights_cooled_twice", "plain", "temperature_1"},
      {"wrong_weights_reversed", "plain", "top_1"},
      {"wrong_weights_alike_where_all_are_chosen", "all_chosen", "plain"},
      {"wrong_weights_detached", "plain", "top_1"},
      {"wrong_weights_numerator_alone", "plain", "no_gradients"},
      {"wrong_index_sorted_alone", "plain", "top_1"},
      {"wrong_index_in_double", "plain", ""},
  };
  for (const kernel_calls::Row& row : kernel_calls::common_rows("gate")) rows.push_back(row);
  for (const std::string& text : kernel_calls::complaints(kernel(), rows, {"wrong_gate_rerun_differs"}))
    ADD_FAILURE() << text;
}

}  // namespace
}  // namespace fractus::moe_gate
