// The block with chunked attention inside, as a pure function of its tensors: what `block_chunked` runs once and
// `block_ckpt` runs again in its backward.
#pragma once

#include "contracts/block_core.h"
#include "contracts/form.h"

namespace fractus::block_core {

struct Config {
  std::int64_t heads, top_k, steps, block;  // block: tokens at a time in attention
  double steepness, dt, damping;            // steepness: kappa / temperature
};

// Throws std::invalid_argument that names the argument, what was wanted and what was got: no token, an n_heads that
// does not divide the width, a top_k outside of [1, E], a value that is not finite.
Config checked(const Tensors& inputs, const Scalars& scalars, const Settings& settings);

// (out, lb, S, z, theta) of inputs in the contract's order. S, z and theta are detached.
Tensors core(const Tensors& inputs, const Config& config);

}  // namespace fractus::block_core
