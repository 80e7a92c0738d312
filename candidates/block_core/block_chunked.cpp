// The form in production: attention by chunks of tokens, differentiated by autograd.
#include "candidates/block_core/core.h"

namespace fractus::block_core {
namespace {

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings& settings) {
  return core(inputs, checked(inputs, scalars, settings));
}

const Registration registered{{
    .kernel = "block_core",
    .name = "block_chunked",
    .role = Role::candidate,
    .summary = "chunked attention; the chosen experts' parameters gathered once a batch row",
    .settings = {{"block", 64}},
    .run = run,
}};

}  // namespace
}  // namespace fractus::block_core
