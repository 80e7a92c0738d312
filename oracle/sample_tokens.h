// The law of a sampler's rows: softmax(h W^T / temperature), and how far a correct kernel's own law may lie from it.
#pragma once

#include <vector>

#include "contracts/array.h"

namespace fractus::oracle::sample_tokens {

// Below this a probability is no part of `slack`: rounding may flush it, and no run draws it.
inline constexpr double least_probability = 0x1p-100;

struct Law {
  std::vector<double> probability;  // (N,V), row by row
  // (N): the softmax that any correct kernel of the dtype computes lies within probability * exp(+-slack) wherever
  // probability >= least_probability; infinity where no bound exists. It covers the kernels of cross_entropy's class,
  // the logits or h divided by the temperature; what the drawing itself rounds (uniform numbers of 24 bits, a
  // cumulative sum) is the sampler's own and not in it.
  std::vector<double> slack;
};

// h (N,d), W (V,d). Throws std::invalid_argument for an empty tensor, widths that differ, or temperature <= 0.
Law law(DType dtype, const Array& h, const Array& W, double temperature, int threads = 1);

}  // namespace fractus::oracle::sample_tokens
