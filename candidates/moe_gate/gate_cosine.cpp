// Cosines of the differences theta - mu, and gates by their logarithms: nothing is divided by a sum that could be
// small.
#include <cmath>

#include "candidates/moe_gate/inputs.h"
#include "candidates/moe_gate/routing.h"

namespace fractus::moe_gate {
namespace {

using at::Tensor;

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const Inputs in = checked(inputs, scalars);
  const Tensor theta = at::atan2(in.phases.sin().sum(-1, true), in.phases.cos().sum(-1, true));
  const Tensor exponents = (theta - in.mu).cos().mul_(in.steepness);
  const Tensor log_sum = exponents.logsumexp(-1, /*keepdim=*/true);
  const Tensor falls_back = log_sum <= std::log(cut);
  const auto [largest, index] = exponents.topk(in.top_k, -1);
  const Tensor gates = (exponents - log_sum).exp_().masked_fill(falls_back, 1 / static_cast<double>(in.mu.size(0)));
  const Tensor weights = largest.softmax(-1).masked_fill(falls_back, 1 / static_cast<double>(in.top_k));
  return {gates, index, weights, load_balance(gates)};
}

const Registration registered{{
    .kernel = "moe_gate",
    .name = "gate_cosine",
    .role = Role::candidate,
    .summary = "cosines of the differences theta - mu; gates by the logarithm of their sum",
    .run = run,
}};

}  // namespace
}  // namespace fractus::moe_gate
