// linear_attention(q, k, v, S0=None, z0=None) -> (y, S, z), causal and normalised, with a carry:
//
//   S_t = S0 + sum_{j<=t} k_j v_j^T      z_t = z0 + sum_{j<=t} k_j       (token t sees itself)
//   den_t = q_t . z_t                    y_t = (q_t^T S_t) / (den_t + 1e-20) if |den_t| > 1e-10, else 0
//   S = S_T, z = z_T
//
// q, k, v are (G,T,D), S0 is (G,D,D) indexed [key, value], z0 is (G,D); an absent S0 or z0 is zero.
#pragma once

#include "contracts/contract.h"

namespace fractus::linear_attention {

// A row whose |den| is at most `cut` is 0, and no gradient passes through it. Both numbers are part of the contract.
inline constexpr double cut = 1e-10;
inline constexpr double epsilon = 1e-20;

// Entries are 0 or have a magnitude between 2^-domain_exponent and 2^domain_exponent.
inline constexpr int domain_exponent = 30;

const Contract& contract();

}  // namespace fractus::linear_attention
