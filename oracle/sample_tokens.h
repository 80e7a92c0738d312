// The law of a sampler's rows: softmax(h W^T / temperature), and how far a correct kernel's own law may lie from it.
#pragma once

#include "contracts/array.h"
#include "oracle/law.h"

namespace fractus::oracle::sample_tokens {

// h (N,d), W (V,d). The slack covers the kernels of cross_entropy's class, the logits or h divided by the temperature.
// Throws std::invalid_argument for an empty tensor, widths that differ, or temperature <= 0.
Law law(DType dtype, const Array& h, const Array& W, double temperature, int threads = 1);

}  // namespace fractus::oracle::sample_tokens
