// A call of moe as its candidates read it, and the routing that they share: they differ in how they come from a
// selection to what its experts say.
#pragma once

#include "candidates/moe/experts.h"
#include "contracts/form.h"
#include "contracts/moe.h"

namespace fractus::moe {

struct Inputs {
  at::Tensor h, phases, mu;  // mu without its graph: no gradient flows into it
  Experts experts;
  double steepness;  // kappa / temperature
  std::int64_t top_k;
};

// Throws std::invalid_argument that names the argument, what was wanted and what was got, and the row of the whole
// batch or the expert: no column, oscillator or expert, a top_k outside of [1, E], a temperature that is not above 0, a
// steepness beyond the domain, a value that is not finite.
Inputs checked(const Tensors& inputs, const Scalars& scalars);

struct Routing {
  at::Tensor index, weights;  // (B,T,top_k)
  at::Tensor balance;         // lb
};

Routing routed(const at::Tensor& phases, const at::Tensor& mu, double steepness, std::int64_t top_k);

}  // namespace fractus::moe
