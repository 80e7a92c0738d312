#include "candidates/moe/inputs.h"

#include <stdexcept>

#include "candidates/moe_gate/routing.h"

namespace fractus::moe {

using at::Tensor;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe: " + what); }

}  // namespace

Inputs checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &phases = inputs[1], &mu = inputs[2];
  if (h.size(2) == 0) refuse("h: wanted at least one column, got " + to_string(h.sizes().vec()));
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  if (mu.size(0) == 0) refuse("expert_phases: wanted at least one expert, got none");
  moe_gate::check_routing("moe", scalars, mu.size(0));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const bool by_token = i < 2;
    moe_gate::require_finite("moe", contract().inputs[i].name, inputs[i], by_token ? h.size(0) * h.size(1) : mu.size(0),
                             by_token ? "row" : "expert");
  }
  return {.h = h,
          .phases = phases,
          .mu = mu.detach(),
          .experts = {inputs[3], inputs[4], inputs[5], inputs[6], inputs[7], inputs[8], inputs[9], inputs[10],
                      inputs[11], inputs[12]},
          .steepness = scalars.at("kappa") / scalars.at("temperature"),
          .top_k = static_cast<std::int64_t>(scalars.at("top_k"))};
}

Routing routed(const Tensor& phases, const Tensor& mu, double steepness, std::int64_t top_k) {
  const Tensor theta = at::atan2(phases.sin().sum(-1, true), phases.cos().sum(-1, true));
  const Tensor gates = moe_gate::shares((theta - mu).cos().mul_(steepness).exp());
  const Tensor index = std::get<1>(gates.detach().topk(top_k, -1));
  return {
      .index = index, .weights = moe_gate::shares(gates.gather(-1, index)), .balance = moe_gate::load_balance(gates)};
}

}  // namespace fractus::moe
