#include "candidates/moe_gate/inputs.h"

#include <stdexcept>

#include "candidates/moe_gate/routing.h"

namespace fractus::moe_gate {

using at::Tensor;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe_gate: " + what); }

}  // namespace

Inputs checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &phases = inputs[0], &expert_phases = inputs[1];
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  if (expert_phases.size(0) == 0) refuse("expert_phases: wanted at least one expert, got none");
  check_routing("moe_gate", scalars, expert_phases.size(0));
  require_finite("moe_gate", "phases", phases, phases.size(0) * phases.size(1), "row");
  require_finite("moe_gate", "expert_phases", expert_phases, expert_phases.size(0), "expert");
  return {phases, expert_phases.detach(), scalars.at("kappa") / scalars.at("temperature"),
          static_cast<std::int64_t>(scalars.at("top_k"))};
}

}  // namespace fractus::moe_gate
