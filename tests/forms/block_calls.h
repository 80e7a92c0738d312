// Small calls of block_core: parameters as a trained block has them, with a carry.
#pragma once

#include <cmath>
#include <string>

#include "contracts/block_core.h"
#include "tests/forms/kernel_calls.h"

namespace fractus::block_calls {

using kernel_calls::Case, kernel_calls::Kernel, kernel_calls::Named;

inline Dims dims(std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t levels, std::int64_t experts,
                 std::int64_t rank, std::int64_t top_k, std::int64_t steps = 2) {
  return {{"B", batch},   {"T", tokens}, {"d", 4 * heads}, {"L", levels},      {"P", 4},         {"R", 2},
          {"E", experts}, {"F", 6},      {"r", rank},      {"n_heads", heads}, {"top_k", top_k}, {"n_steps", steps}};
}

inline void trained(Named& in) {
  const double golden = (1 + std::sqrt(5.0)) / 2;
  const std::int64_t levels = in["level_offsets"].size(0), experts = in["expert_phases"].size(0);
  const auto each = [](std::int64_t count) { return at::arange(count, at::kDouble); };
  in["level_offsets"] = at::pow(at::full({}, golden, at::kDouble), each(levels) * -2);
  in["expert_phases"] = each(experts) * (2 * M_PI / static_cast<double>(experts)) + 0.1;
  for (auto& [name, x] : in) {
    if (name.ends_with(".weight")) x = 1 + x / 5;
    if (name == "attn.w_qkv" || name == "attn.w_out") x = x / 2;
    if (name == "z0") x = x.abs() + 0.5;
  }
}

inline void small_rows(Named& in) {
  trained(in);
  in["h"] /= 200;
}

inline void strided(Named& in) {
  trained(in);
  in["h"] = in["h"].transpose(0, 1).contiguous().transpose(0, 1);
}

// Experts in pairs of one phase: whichever is chosen, its gates tie to the bit.
inline void tied_experts(Named& in) {
  trained(in);
  in["expert_phases"] = at::arange(in["expert_phases"].size(0), at::kDouble).div(2, "floor");
}

inline const Kernel& kernel() {
  static const Scalars usual{{"kappa", 4}, {"temperature", 2.5}, {"dt", 0.1}, {"damping", 0.01}},
      other{{"kappa", 3}, {"temperature", 1.5}, {"dt", 0.2}, {"damping", 0.3}};
  static const Dims plain = dims(2, 6, 2, 2, 5, 3, 2);
  static const Kernel k{
      .contract = &block_core::contract(),
      .reference = "block_plain",
      .cases =
          {
              {"plain", plain, other, at::kDouble, trained},
              {"float32", plain, other, at::kFloat, trained},
              {"usual", dims(2, 6, 2, 2, 5, 3, 2, 1), usual, at::kDouble, trained},
              {"dense", dims(2, 6, 2, 2, 5, 0, 2), other, at::kDouble, trained},
              {"no_carry", plain, other, at::kDouble, trained, {"S0", "z0"}},
              {"no_S0", plain, other, at::kDouble, trained, {"S0"}},
              {"no_z0", plain, other, at::kDouble, trained, {"z0"}},
              {"one_level", dims(2, 6, 2, 1, 5, 3, 2), other, at::kDouble, trained},
              {"three_levels", dims(1, 6, 2, 3, 5, 3, 2), other, at::kDouble, trained},
              {"one_head", dims(2, 6, 1, 2, 5, 3, 2), other, at::kDouble, trained},
              {"one_token", dims(2, 1, 2, 2, 5, 3, 2), other, at::kDouble, trained},
              {"one_row", dims(1, 6, 2, 2, 5, 3, 2), other, at::kDouble, trained},
              {"one_expert", dims(2, 6, 2, 2, 1, 3, 1), other, at::kDouble, trained},
              {"top_1", dims(2, 6, 2, 2, 5, 3, 1), other, at::kDouble, trained},
              // Oscillators that have not moved cancel, and any expert is right: one is all there is.
              {"no_steps", dims(2, 6, 2, 2, 1, 3, 1, 0), other, at::kDouble, trained},
              {"ragged", dims(1, 70, 2, 2, 5, 3, 2), other, at::kDouble, trained},
              {"small_rows", plain, other, at::kDouble, small_rows},
              {"strided", dims(3, 6, 2, 2, 5, 3, 2), other, at::kDouble, strided},
              {"times_minus_3", plain, other, at::kDouble, trained, {}, -3},
              {"no_gradients", plain, other, at::kDouble, trained, {}, 1, false},
              {"computed", plain, other, at::kDouble, trained, {}, 1, true, true},
              {"no_grad_mode", plain, other, at::kDouble, trained, {}, 1, true, false, true},
              {"crowded", plain, other, at::kDouble, trained, {}, 1, true, false, false, true},
              {"crowded_without_gradients", plain, other, at::kDouble, trained, {}, 1, false, false, false, true},
              {"two_threads", plain, other, at::kDouble, trained, {}, 1, true, false, false, false, 2},
          },
      // Theta as points on the circle.
      .settled = [](const Tensors& y) -> Tensors {
        return {y[0], y[1], y[2], y[3], at::stack({y[4].cos(), y[4].sin()})};
      }};
  return k;
}

}  // namespace fractus::block_calls
