// The reference of moe_gate: the definition line by line, differentiated by autograd. It shares no code with a
// candidate; what both refuse the same way is written twice, here and there.
#include "contracts/moe_gate.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/form.h"
#include "reference/parts.h"

namespace fractus {
namespace reference {

using at::Tensor;

void check_routing(const std::string& kernel, double kappa, double temperature, double top_k, std::int64_t experts) {
  const auto refuse = [&](const std::string& what) { throw std::invalid_argument(kernel + ": " + what); };
  if (!std::isfinite(kappa)) refuse(fmt::format("kappa: wanted a finite number, got {}", kappa));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!(std::abs(kappa / temperature) <= moe_gate::steepest))
    refuse(fmt::format("kappa: wanted kappa / temperature of at most {}, got {} / {}", moe_gate::steepest, kappa,
                       temperature));
  if (!(top_k >= 1 && top_k <= static_cast<double>(experts)) || top_k != std::floor(top_k))
    refuse(fmt::format("top_k: wanted a whole number from 1 to {}, got {}", experts, top_k));
}

void check_finite(const std::string& kernel, const std::string& name, const Tensor& tensor, const std::string& row) {
  const Tensor bad = tensor.detach().isfinite().all(-1).logical_not().flatten().nonzero();
  if (bad.numel() == 0) return;
  throw std::invalid_argument(fmt::format("{}: {}: wanted finite values, got one that is not in {} {}", kernel, name,
                                          row, bad[0][0].item<std::int64_t>()));
}

namespace {

// x over its sum, equal shares where the sum is at or below the cut. Such a sum is replaced by 1 before the division,
// so that neither value nor gradient of what is dropped can be NaN.
Tensor shares(const Tensor& x) {
  const Tensor sum = x.sum(-1, /*keepdim=*/true), keep = sum > moe_gate::cut;
  const Tensor equal = at::full({}, 1.0 / static_cast<double>(x.size(-1)), x.options());
  return at::where(keep, x / at::where(keep, sum, at::ones_like(sum)), equal);
}

}  // namespace

Gate gate(const Tensor& phases, const Tensor& mu, double steepness, std::int64_t top_k) {
  const auto experts = static_cast<double>(mu.size(0));
  const Tensor theta = at::atan2(phases.sin().sum(-1), phases.cos().sum(-1));
  const Tensor gates = shares(at::exp(steepness * at::cos(theta.unsqueeze(-1) - mu)));
  const auto [largest, index] = gates.topk(top_k, -1);
  const Tensor mean = gates.flatten(0, 1).mean(0);
  return {gates, index, shares(largest), experts * (mean - 1 / experts).square().sum()};
}

}  // namespace reference

namespace moe_gate {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe_gate: " + what); }

Tensors gate_plain(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check_inputs(contract(), inputs);
  const Tensor &phases = inputs[0], &expert_phases = inputs[1];
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  if (expert_phases.size(0) == 0) refuse("expert_phases: wanted at least one expert, got none");
  const double kappa = scalars.at("kappa"), temperature = scalars.at("temperature"), top_k = scalars.at("top_k");
  reference::check_routing("moe_gate", kappa, temperature, top_k, expert_phases.size(0));
  reference::check_finite("moe_gate", "phases", phases, "row");
  reference::check_finite("moe_gate", "expert_phases", expert_phases.unsqueeze(1), "expert");
  const reference::Gate result =
      reference::gate(phases, expert_phases.detach(), kappa / temperature, static_cast<std::int64_t>(top_k));
  return {result.gates, result.index, result.weights, result.balance};
}

const Registration registered{{
    .kernel = "moe_gate",
    .name = "gate_plain",
    .role = Role::reference,
    .summary = "the definition line by line, differentiated by autograd",
    .run = gate_plain,
}};

}  // namespace
}  // namespace moe_gate
}  // namespace fractus
