// matmul(a, b) -> c, a batch of matrix products: a (G,M,K), b (G,K,N), c (G,M,N). Known to the command `identity`
// alone.
#pragma once

#include "contracts/contract.h"

namespace fractus::matmul {

const Contract& contract();

}  // namespace fractus::matmul
