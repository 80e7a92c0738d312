// A call of moe_gate as its candidates read it. They differ in how they come by (kappa / temperature) cos(theta - mu).
#pragma once

#include "contracts/form.h"
#include "contracts/moe_gate.h"

namespace fractus::moe_gate {

struct Inputs {
  at::Tensor phases, mu;  // mu without its graph: no gradient flows into it
  double steepness;       // kappa / temperature
  std::int64_t top_k;
};

// Throws std::invalid_argument that names the argument, what was wanted and what was got, and the row of the whole
// batch: no oscillator, no expert, a top_k outside of [1, E], a temperature that is not above 0, a steepness beyond
// the domain, a value that is not finite.
Inputs checked(const Tensors& inputs, const Scalars& scalars);

}  // namespace fractus::moe_gate
