// block_core(h, S0, z0, params, config) -> (out, lb, S, z, theta): one block over a chunk h (B,T,d), d = n_heads D.
//
//   x = LayerNorm(h) by norm_attn; q, k, v = x w_qkv + b_qkv; per level l the feature map elu(. + level_offsets_l) + 1
//     of q and k; linear_attention per (batch, level, head) with the carry; levels mixed by softmax(level_logits)
//   h1 = h + mixed w_out + b_out
//   theta = kuramoto(LayerNorm(h1) by norm_kur)
//   out = h1 + moe(LayerNorm(h1) by norm_moe), for the whole chunk by theta of its LAST token
//
// S0 (B,d,d) and z0 (B,d) are the carry, a block of D rows and columns a head; absent they are zero, and what lies
// outside of the blocks is ignored. S and z are the means over levels of the heads' states, S with zeros outside of the
// blocks. No gradient flows into S0 or z0, nor out of S, z and theta, which are detached. T = 0 is an error.
#pragma once

#include "contracts/contract.h"

namespace fractus::block_core {

inline constexpr double layer_norm_epsilon = 1e-5;  // beside the biased variance

// What a config says where it says nothing.
const Scalars& usual_config();

const Contract& contract();

}  // namespace fractus::block_core
