// The last step of every candidate: numerator over denominator, with the contract's cut.
#pragma once

#include <ATen/ATen.h>

#include "contracts/linear_attention.h"

namespace fractus::linear_attention {

// Overwrites `numerator` (..., D), a temporary of the caller's, with numerator / (denominator + epsilon), and with 0
// where |denominator| <= cut. A cut row is divided by 1 before it is cleared: its gradient is 0 / 1, never 0 / 0.
inline at::Tensor divide_in_place(at::Tensor numerator, const at::Tensor& denominator) {
  const at::Tensor is_cut = denominator.abs() <= cut;
  const at::Tensor divisor = (denominator + epsilon).masked_fill_(is_cut, 1);
  return numerator.div_(divisor.unsqueeze(-1)).masked_fill_(is_cut.unsqueeze(-1), 0);
}

}  // namespace fractus::linear_attention
