#include "candidates/moe_gate/inputs.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace fractus::moe_gate {

using at::Tensor;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe_gate: " + what); }

void require_finite(const Tensor& phases, const Tensor& mu) {
  // One pass where all is well: a sum of squares is finite only if every number is, or overflows, which is looked into.
  const Tensor all = phases.square().sum() + mu.square().sum();
  if (std::isfinite(all.item<double>())) return;
  const Tensor rows = phases.isfinite().logical_not_().any(-1).flatten().nonzero();
  if (rows.numel() > 0)
    refuse(fmt::format("phases: wanted finite values, got one that is not in row {}", rows[0].item<std::int64_t>()));
  const Tensor experts = mu.isfinite().logical_not_().nonzero();
  if (experts.numel() == 0) return;
  refuse(fmt::format("expert_phases: wanted finite values, got one that is not in expert {}",
                     experts[0].item<std::int64_t>()));
}

}  // namespace

Inputs checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &phases = inputs[0], &expert_phases = inputs[1];
  const double kappa = scalars.at("kappa"), temperature = scalars.at("temperature"), top_k = scalars.at("top_k");
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  if (expert_phases.size(0) == 0) refuse("expert_phases: wanted at least one expert, got none");
  if (!std::isfinite(kappa)) refuse(fmt::format("kappa: wanted a finite number, got {}", kappa));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!(std::abs(kappa / temperature) <= steepest))
    refuse(fmt::format("kappa: wanted kappa / temperature of at most {}, got {} / {}", steepest, kappa, temperature));
  if (!(top_k >= 1 && top_k <= static_cast<double>(expert_phases.size(0))) || top_k != std::floor(top_k))
    refuse(fmt::format("top_k: wanted a whole number from 1 to {}, got {}", expert_phases.size(0), top_k));
  require_finite(phases.detach(), expert_phases.detach());
  return {phases, expert_phases.detach(), kappa / temperature, static_cast<std::int64_t>(top_k)};
}

Tensor load_balance(const Tensor& gates) {
  const auto experts = static_cast<double>(gates.size(-1));
  return gates.flatten(0, 1).mean(0).sub_(1 / experts).square().sum() * experts;
}

}  // namespace fractus::moe_gate
