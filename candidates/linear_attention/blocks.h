// Tokens in blocks: scores inside a block, a running state between blocks. The last block may be shorter.
#pragma once

#include "candidates/linear_attention/inputs.h"

namespace fractus::linear_attention {

Tensors by_blocks(Inputs in, std::int64_t block);
std::int64_t blocks_extra_elements(const Dims& dims, std::int64_t block);

}  // namespace fractus::linear_attention
