// cross_entropy(h, W, targets, ce_chunk) -> loss, the mean over rows of the negative log-likelihood of their targets:
//
//   x_n = h_n W^T      a_n = max_i x_ni      loss = mean_n( log sum_i exp(x_ni - a_n) - (x_n,target_n - a_n) )
//
// h is (N,d), W is (V,d), the tied embedding, targets (N) int64 in [0,V). The shift by a_n is part of the definition:
// an offset that all logits of a row share costs no accuracy beyond that of x itself. ce_chunk rows at a time, all at
// once where it is 0; with ce_chunk > 0 nothing of N x V is held, forward or backward.
#pragma once

#include <cstdint>

#include "contracts/contract.h"

namespace fractus::cross_entropy {

// A target that alone may be left out of sum and mean, as torch does by default, instead of being an error.
inline constexpr std::int64_t ignored_target = -100;

const Contract& contract();

}  // namespace fractus::cross_entropy
