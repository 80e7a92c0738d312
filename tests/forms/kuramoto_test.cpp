// Every form of kuramoto against the reference in float64, on a few dozen small calls; what is refused, what a graph
// keeps, and each wrong form on a call where its fault shows and on one where it does not.
#include "contracts/kuramoto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/forms/complaint.h"
#include "tests/forms/kernel_calls.h"

namespace fractus::kuramoto {
namespace {

using at::Tensor;
using kernel_calls::broken, kernel_calls::Case, kernel_calls::Kernel, kernel_calls::Named;

Dims dims(std::int64_t batch, std::int64_t tokens, std::int64_t width, std::int64_t oscillators, std::int64_t rank,
          std::int64_t steps) {
  return {{"B", batch}, {"T", tokens}, {"d", width}, {"P", oscillators}, {"r", rank}, {"n_steps", steps}};
}

const Scalars usual{{"dt", 0.1}, {"damping", 0.3}}, undamped{{"dt", 0.125}, {"damping", 0}};

void strided(Named& in) { in["hidden"] = in["hidden"].transpose(0, 1).contiguous().transpose(0, 1); }
// Of every mean, 2 pi mean + offset lies well inside [0, 2 pi), and no oscillator moves far.
void nothing_wraps(Named& in) {
  in["hidden"] = in["hidden"] / 1000 - in["hidden"].mean(-1, true) / 1000 + 0.02;
  in["omega"] /= 100;
  in["coupling_u"] /= 10;
}
void positive(Named& in) { in["hidden"].abs_(); }
void standing(Named& in) { in["coupling_lambda"].zero_(), in["omega"].zero_(); }
void fast(Named& in) { in["omega"] = in["omega"].abs() * 3 + 12; }  // every oscillator wraps within a step or two

const Kernel& kernel() {
  static const Kernel k{
      .contract = &contract(),
      .reference = "kuramoto_staged",
      .cases =
          {
              {"plain", dims(2, 3, 5, 4, 2, 2), usual},
              {"float32", dims(2, 3, 5, 4, 2, 2), usual, at::kFloat},
              {"undamped", dims(2, 3, 5, 4, 2, 2), undamped},
              {"no_steps", dims(2, 3, 5, 4, 2, 0), usual},
              {"one_step", dims(2, 3, 5, 4, 2, 1), usual},
              {"three_steps", dims(2, 3, 5, 4, 2, 3), usual},
              {"four_steps", dims(2, 3, 5, 4, 2, 4), usual},
              {"one_oscillator", dims(2, 3, 5, 1, 2, 2), usual},
              {"two_oscillators", dims(2, 3, 5, 2, 2, 2), usual},
              {"one_rank", dims(2, 3, 5, 4, 1, 2), usual},
              {"no_rank", dims(2, 3, 5, 4, 0, 2), usual},
              {"one_column", dims(2, 3, 1, 4, 2, 2), usual},
              {"one_token", dims(1, 1, 5, 4, 2, 2), usual},
              {"no_tokens", dims(2, 0, 5, 4, 2, 2), usual},
              {"live_oscillators", dims(1, 4, 64, 16, 8, 1), {{"dt", 0.1}, {"damping", 0.01}}},
              {"strong", dims(1, 4, 5, 4, 2, 2), {{"dt", 0.5}, {"damping", 0.3}}},
              {"strided", dims(3, 5, 4, 4, 2, 2), usual, at::kDouble, strided},
              {"nothing_wraps", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nothing_wraps},
              {"positive", dims(2, 3, 5, 4, 2, 1), usual, at::kDouble, positive},
              {"standing", dims(2, 3, 5, 4, 2, 2), undamped, at::kDouble, standing},
              {"fast", dims(2, 3, 5, 4, 2, 2), {{"dt", 0.5}, {"damping", 0.3}}, at::kDouble, fast},
              {"times_minus_3", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nullptr, {}, -3},
              {"no_gradients", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nullptr, {}, 1, false},
              {"computed", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nullptr, {}, 1, true, true},
              {"no_grad_mode", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nullptr, {}, 1, true, false, true},
              {"crowded", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nullptr, {}, 1, true, false, false, true},
              {"crowded_without_gradients",
               dims(2, 3, 5, 4, 2, 2),
               usual,
               at::kDouble,
               nullptr,
               {},
               1,
               false,
               false,
               false,
               true},
              {"two_threads", dims(2, 3, 5, 4, 2, 2), usual, at::kDouble, nullptr, {}, 1, true, false, false, false, 2},
          },
      // As points on the circle.
      .settled = [](const Tensors& y) -> Tensors {
        return {at::stack({y[0].cos(), y[0].sin()})};
      }};
  return k;
}

// Protects: the fused form, its own backward too, agrees with the stages of the reference on every case.
TEST(Kuramoto, FormsAgree) {
  for (const char* name : {"kuramoto_staged", "kuramoto_fused"})
    for (const Case& c : kernel().cases)
      EXPECT_EQ(broken(kernel(), kernel().form(name), c), "") << name << ", " << c.name;
}

// Protects: the reference, against one oscillator's step written out in numbers: no coupling, theta' = omega - damping
// theta, for which RK4 multiplies the distance from omega / damping by 1 - x + x^2/2 - x^3/6 + x^4/24, x = damping dt.
TEST(Kuramoto, ReferenceDampsAsRk4Does) {
  const double damping = 0.7, dt = 0.3, x = damping * dt, omega = 0.4;
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const double theta = kernel()
                           .form("kuramoto_staged")
                           .run({at::full({1, 1, 2}, -0.3, options), at::full({1}, omega, options),
                                 at::ones({1, 1}, options), at::zeros({1}, options)},
                                {{"n_steps", 1}, {"dt", dt}, {"damping", damping}}, {})[0]
                           .item<double>();
  const double start = 2 * std::numbers::pi * 0.7;
  const double factor = 1 - x + x * x / 2 - x * x * x / 6 + x * x * x * x / 24;
  EXPECT_NEAR(theta, omega / damping + (start - omega / damping) * factor, 1e-14);
}

// Protects: all angles lie in [0, 2 pi], whatever turns the means are on.
TEST(Kuramoto, AnglesAreWrapped) {
  for (const char* name : {"kuramoto_staged", "kuramoto_fused"})
    for (const char* on : {"plain", "fast", "no_steps"}) {
      const Case& c = kernel().named(on);
      const Tensor theta =
          kernel_calls::forward(kernel(), kernel().form(name), c, kernel_calls::made(kernel(), c, 2)).outputs[0];
      EXPECT_TRUE((theta >= 0).logical_and(theta <= 2 * std::numbers::pi).all().item<bool>()) << name << ", " << on;
    }
}

// Protects: what is refused names the argument, what was wanted and the row of the whole batch.
TEST(Kuramoto, RefusesBadInput) {
  for (const char* name : {"kuramoto_staged", "kuramoto_fused"}) {
    const auto complaint = [&](const std::string& argument, double value, void (*spoil)(Tensors&) = nullptr) {
      Tensors in = kernel_calls::made(kernel(), kernel().named("plain"), 2);
      if (spoil != nullptr) spoil(in);
      Scalars scalars{{"n_steps", 2}, {"dt", 0.1}, {"damping", 0.3}};
      if (!argument.empty()) scalars[argument] = value;
      return complaint_of<std::invalid_argument>([&] { kernel().form(name).run(in, scalars, {}); });
    };
    EXPECT_EQ(complaint("", 0), "");
    EXPECT_EQ(complaint("n_steps", -1), "kuramoto: n_steps: wanted a whole number of 0 or more, got -1");
    EXPECT_EQ(complaint("n_steps", 0.5), "kuramoto: n_steps: wanted a whole number of 0 or more, got 0.5");
    EXPECT_EQ(complaint("dt", INFINITY), "kuramoto: dt: wanted a finite number, got inf");
    EXPECT_EQ(complaint("damping", NAN), "kuramoto: damping: wanted a finite number, got nan");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0][1][2][3] = NAN; }),
              "kuramoto: hidden: wanted finite values, got one that is not in row 5");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[1][2] = NAN; }),
              "kuramoto: omega: wanted finite values, got one that is not in oscillator 2");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[2][3][1] = INFINITY; }),
              "kuramoto: coupling_u: wanted finite values, got one that is not in oscillator 3");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[3][1] = INFINITY; }),
              "kuramoto: coupling_lambda: wanted finite values, got one that is not in rank 1");
    EXPECT_EQ(complaint("", 0, [](Tensors& in) { in[0] = in[0].narrow(2, 0, 0); }),
              "kuramoto: hidden: wanted at least one column, got (2, 3, 0)");
    EXPECT_NE(complaint("", 0,
                        [](Tensors& in) {
                          in[3] = at::cat({in[3], in[3]});
                        })
                  .find("coupling_lambda: wanted r = 2"),
              std::string::npos);
  }
}

// Protects: each fault shows where its summary says and not elsewhere; no wrong form is left out.
TEST(Kuramoto, WrongFormsAreWrongWhereTheySay) {
  std::vector<kernel_calls::Row> rows{
      {"wrong_euler", "plain", "standing"},
      {"wrong_midpoint", "plain", "standing"},
      {"wrong_three_eighths_weights", "strong", "standing"},
      {"wrong_equal_weights", "strong", "standing"},
      {"wrong_third_stage_from_first", "strong", "standing"},
      {"wrong_last_stage_at_half", "plain", "standing"},
      {"wrong_dt_float32", "plain", "undamped"},
      {"wrong_last_stage_without_gradient", "plain", "no_gradients"},
      {"wrong_one_step_more", "plain", ""},
      {"wrong_at_least_one_step", "no_steps", "one_step"},
      {"wrong_at_most_three_steps", "four_steps", "three_steps"},
      {"wrong_truncated_modulus", "plain", "positive"},
      {"wrong_start_not_wrapped", "plain", "undamped"},
      {"wrong_start_around_0", "plain", "undamped"},
      {"wrong_wrapped_at_the_end", "fast", "undamped"},
      {"wrong_wrapped_around_0", "fast", "undamped"},
      {"wrong_wrap_without_gradient", "plain", "no_steps"},
      {"wrong_gradient_of_last_step", "plain", "one_step"},
      {"wrong_wrapped_oscillators_without_gradient", "fast", "nothing_wraps"},
      {"wrong_coarse_turn", "fast", "nothing_wraps"},
      {"wrong_offsets_between", "plain", "one_oscillator"},
      {"wrong_offsets_backwards", "plain", "two_oscillators"},
      {"wrong_mean_over_width_less_one", "plain", "one_column"},
      {"wrong_last_column_lost", "plain", "one_column"},
      {"wrong_mean_bfloat16", "plain", ""},
      {"wrong_start_of_first_token", "plain", "one_token"},
      {"wrong_gradient_of_a_sum", "plain", "one_column"},
      {"wrong_damping_sign", "plain", "undamped"},
      {"wrong_no_damping", "plain", "undamped"},
      {"wrong_damping_of_sine", "plain", "undamped"},
      {"wrong_damping_float32", "plain", "undamped"},
      {"wrong_damping_without_gradient", "plain", "undamped"},
      {"wrong_lambda_on_sine_only", "plain", "no_rank"},
      {"wrong_lambda_ignored", "plain", "no_rank"},
      {"wrong_coupling_sign", "plain", "one_oscillator"},
      {"wrong_second_term_lost", "plain", "no_rank"},
      {"wrong_coupling_over_oscillators", "plain", "one_oscillator"},
      {"wrong_last_rank_lost", "plain", "one_rank"},
      {"wrong_sine_bfloat16", "plain", "no_rank"},
      {"wrong_U_bfloat16", "plain", "no_rank"},
      {"wrong_U_gradient_of_one_side", "plain", "no_gradients"},
      {"wrong_lambda_without_gradient", "plain", "no_gradients"},
      {"wrong_gradient_of_others", "plain", "no_gradients"},
      {"wrong_omega_without_gradient", "plain", "no_gradients"},
      {"wrong_omega_of_first", "plain", "one_oscillator"},
      {"wrong_omega_by_turns", "plain", ""},
  };
  for (const kernel_calls::Row& row : kernel_calls::common_rows("theta")) rows.push_back(row);
  for (const std::string& text : kernel_calls::complaints(kernel(), rows, {"wrong_theta_rerun_differs"}))
    ADD_FAILURE() << text;
}

}  // namespace
}  // namespace fractus::kuramoto
