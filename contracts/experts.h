// experts(h, weights, experts, W1, b1, W2, b2) -> out, the rational part of moe's dense experts, its gelu left out:
//
//   out_n = sum_k weights_nk ((h_n W1_e + b1_e) W2_e + b2_e), e = experts_nk
//
// h (N,d), weights (N,K), experts (N,K) of int64, different ones in each row, W1 (E,d,f), b1 (E,f), W2 (E,f,d),
// b2 (E,d), out (N,d). Known to the command `identity` alone.
#pragma once

#include "contracts/contract.h"

namespace fractus::experts {

const Contract& contract();

}  // namespace fractus::experts
