// The form in production: whole blocks, and the cumulative sums where T is no multiple of the block.
#include "candidates/linear_attention/blocks.h"
#include "candidates/linear_attention/cumsum.h"

namespace fractus::linear_attention {
namespace {

bool fits(std::int64_t tokens, std::int64_t block) { return tokens % block == 0; }

Tensors run(const Tensors& inputs, const Scalars&, const Settings& settings) {
  Inputs in = checked(inputs);
  const std::int64_t block = settings.at("block");
  return fits(in.tokens, block) ? by_blocks(std::move(in), block) : by_cumsum(in);
}

std::int64_t extra_elements(const Dims& dims, const Settings& settings) {
  const std::int64_t block = settings.at("block");
  return fits(dims.at("T"), block) ? blocks_extra_elements(dims, block) : cumsum_extra_elements(dims);
}

const Registration registered{{
    .kernel = "linear_attention",
    .name = "chunked",
    .role = Role::candidate,
    .summary = "masked scores inside a block, a running state between blocks; a ragged T goes through cumsum",
    .settings = {{"block", 64}},
    .declares = {.extra_elements = extra_elements},
    .run = run,
}};

}  // namespace
}  // namespace fractus::linear_attention
