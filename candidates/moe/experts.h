// Experts on rows of their own: what every candidate with a mixture inside makes of a selection.
#pragma once

#include <ATen/ATen.h>

namespace fractus::moe {

// M of them, along the outermost extent. Either w1 and w2, or the low-rank tensors.
struct Experts {
  at::Tensor w1, w2, U1, V1, U2, V2, scale1, scale2, b1, b2;

  bool dense() const { return w1.defined(); }
  std::int64_t count() const { return b1.size(0); }
};

// Those of the numbers in index (K), in that order, again where a number stands there again.
Experts gathered(const Experts& of, const at::Tensor& index);

// rows (M,N,d), N for each expert -> (M,N,d).
at::Tensor said(const at::Tensor& rows, const Experts& by);

}  // namespace fractus::moe
