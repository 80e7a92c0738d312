// sample_tokens(h, W, ce_chunk, temperature, seed) -> tokens (N) int64: row n is drawn from softmax(h_n W^T /
// temperature), rows independently of each other, ce_chunk rows at a time, all at once where it is 0.
//
// h is (N,d), W is (V,d); temperature > 0; 0 <= seed < 2^32. The same seed gives the same tokens, another one a fresh
// stream, and the global random state is left alone. Two right forms draw different tokens: what they share is the law.
#pragma once

#include "contracts/contract.h"

namespace fractus::sample_tokens {

// What the training run samples with.
inline constexpr double production_temperature = 0.9;

inline constexpr double seeds = 0x1p32;

const Contract& contract();

}  // namespace fractus::sample_tokens
