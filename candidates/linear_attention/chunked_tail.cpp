// Like `chunked`, but the last block is simply shorter, so no T ever pays for (G,T,D,D).
#include "candidates/linear_attention/blocks.h"

namespace fractus::linear_attention {
namespace {

Tensors run(const Tensors& inputs, const Scalars&, const Settings& settings) {
  return by_blocks(checked(inputs), settings.at("block"));
}

const Registration registered{{
    .kernel = "linear_attention",
    .name = "chunked_tail",
    .role = Role::candidate,
    .summary = "masked scores inside a block, a running state between blocks; a ragged last block is shorter",
    .settings = {{"block", 64}},
    .declares = {.extra_elements =
                     [](const Dims& dims, const Settings& settings) {
                       return blocks_extra_elements(dims, settings.at("block"));
                     }},
    .run = run,
}};

}  // namespace
}  // namespace fractus::linear_attention
