// block_attention(q, k, v, mix, S0=None, z0=None) -> (y, S, z), the rational part of block_core's attention: from what
// its feature map gives, by level, to the mix of the levels and the carry.
//
//   y_l, S_l, z_l = linear_attention(q_l, k_l, v; S0, z0), by sequence and head (contracts/linear_attention.h)
//   y = sum_l mix_l y_l      S, z = mean over l of S_l, z_l
//
// q, k (B,L,T,H,D), v (B,T,H,D), mix (L), S0 (B,H,D,D) indexed [key, value], z0 (B,H,D), y (B,T,H,D), S as S0, z as z0;
// an absent S0 or z0 is zero. block_core's mix is a softmax, which is not rational: here it is given, and has a
// gradient. S and z have cotangents too. Known to the command `identity` alone.
#pragma once

#include "contracts/contract.h"

namespace fractus::block_attention {

const Contract& contract();

}  // namespace fractus::block_attention
