// Matrix products over GF(2^31-1) and GF(2^61-1), by products of float64 pieces so small that each sum is exact.
#pragma once

#include <ATen/ATen.h>

namespace fractus::field {

// (batch, m, k) times (batch, k, n), residues in slots of int32 or int64 of the CPU, into a new tensor of their type.
// A batch of stride 0 is read once.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

}  // namespace fractus::field
