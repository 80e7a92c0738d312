// moe(h, phases, params, top_k, kappa, temperature) -> (out, lb): moe_gate's choice for each token, then
//
//   out = sum over the chosen of weight_e expert_e(h)
//   dense      expert_e(h) = gelu(h W1_e + b1_e) W2_e + b2_e
//   low rank   expert_e(h) = s2_e (gelu(s1_e (h V1_e) U1_e^T + b1_e) V2_e) U2_e^T + b2_e
//   gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//
// h (B,T,d), phases (B,T,P). Either the dense tensors are given or the low-rank ones: r = 0 stands for the dense ones.
// lb is moe_gate's. Any admissible selection of a token is right; which one was taken is not among the outputs.
#pragma once

#include "contracts/contract.h"

namespace fractus::moe {

inline constexpr double gelu_cubic = 0.044715;

const Contract& contract();

// The experts' tensors as a group `params`, their names behind `prefix`, for a kernel that has experts inside.
std::vector<TensorSpec> expert_tensors(const std::string& prefix);

}  // namespace fractus::moe
