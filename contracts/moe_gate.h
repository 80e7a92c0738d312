// moe_gate(phases, expert_phases, kappa, temperature, top_k) -> (gates, topk_idx, topk_weights, lb): how a token whose
// oscillators stand at `phases` (B,T,P) is divided among E experts that stand at `expert_phases` (E).
//
//   theta = atan2(sum_p sin, sum_p cos)                   the circular mean of the token's phases
//   g_e = exp((kappa / temperature) cos(theta - mu_e))    gates = g / sum g, 1/E each if the sum is <= 1e-10
//   topk_idx = the top_k largest, in any order            topk_weights = their gates over their sum, likewise 1/top_k
//   lb = E sum_e (mean_{b,t} gates_e - 1/E)^2
//
// A selection is right where it holds every expert that must be in at the certified margin, none that must be out, and
// top_k of them; the weights and all gradients are then those of that selection. Where sum sin and sum cos may both be
// 0, theta is anything, and so is the selection. No gradient flows into expert_phases nor out of topk_idx.
#pragma once

#include "contracts/contract.h"

namespace fractus::moe_gate {

// A sum of gates at or below this gives way to equal shares.
inline constexpr double cut = 1e-10;

// The domain: kappa / temperature is at most this, so that no gate underflows.
inline constexpr double steepest = 40;

const Contract& contract();

}  // namespace fractus::moe_gate
