// The running sums of all tokens at once; `chunked` hands it what its blocks do not fit.
#pragma once

#include "candidates/linear_attention/inputs.h"

namespace fractus::linear_attention {

Tensors by_cumsum(const Inputs& in);
std::int64_t cumsum_extra_elements(const Dims& dims);

}  // namespace fractus::linear_attention
