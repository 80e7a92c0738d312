#include "candidates/moe/inputs.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/moe_gate.h"

namespace fractus::moe {

using at::Tensor;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe: " + what); }

// The sum of magnitudes is finite only if every number is; one that overflows is looked into, and found whole.
void require_finite(const Tensor& tensor, std::int64_t rows, const std::string& name, const char* row) {
  if (tensor.numel() == 0 || std::isfinite(tensor.abs().sum().item<double>())) return;
  const Tensor bad = tensor.reshape({rows, -1}).isfinite().logical_not_().any(1).nonzero();
  if (bad.numel() == 0) return;
  refuse(fmt::format("{}: wanted finite values, got one that is not in {} {}", name, row, bad[0].item<std::int64_t>()));
}

// x over its sum, equal shares where that is at or below the cut.
Tensor shares(const Tensor& x) {
  const Tensor sum = x.sum(-1, /*keepdim=*/true), falls_back = sum <= moe_gate::cut;
  return (x / sum.masked_fill(falls_back, 1)).masked_fill(falls_back, 1 / static_cast<double>(x.size(-1)));
}

}  // namespace

Inputs checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &phases = inputs[1], &mu = inputs[2];
  const double kappa = scalars.at("kappa"), temperature = scalars.at("temperature"), top_k = scalars.at("top_k");
  if (h.size(2) == 0) refuse("h: wanted at least one column, got " + to_string(h.sizes().vec()));
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  if (mu.size(0) == 0) refuse("expert_phases: wanted at least one expert, got none");
  if (!std::isfinite(kappa)) refuse(fmt::format("kappa: wanted a finite number, got {}", kappa));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!(std::abs(kappa / temperature) <= moe_gate::steepest))
    refuse(fmt::format("kappa: wanted kappa / temperature of at most {}, got {} / {}", moe_gate::steepest, kappa,
                       temperature));
  if (!(top_k >= 1 && top_k <= static_cast<double>(mu.size(0))) || top_k != std::floor(top_k))
    refuse(fmt::format("top_k: wanted a whole number from 1 to {}, got {}", mu.size(0), top_k));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const bool by_token = i < 2;
    require_finite(inputs[i].detach(), by_token ? h.size(0) * h.size(1) : mu.size(0), contract().inputs[i].name,
                   by_token ? "row" : "expert");
  }
  return {.h = h,
          .phases = phases,
          .mu = mu.detach(),
          .experts = {inputs[3], inputs[4], inputs[5], inputs[6], inputs[7], inputs[8], inputs[9], inputs[10],
                      inputs[11], inputs[12]},
          .steepness = kappa / temperature,
          .top_k = static_cast<std::int64_t>(top_k)};
}

Routing routed(const Tensor& phases, const Tensor& mu, double steepness, std::int64_t top_k) {
  const Tensor theta = at::atan2(phases.sin().sum(-1, true), phases.cos().sum(-1, true));
  const Tensor gates = shares((theta - mu).cos().mul_(steepness).exp());
  const Tensor index = std::get<1>(gates.detach().topk(top_k, -1));
  const auto experts = static_cast<double>(mu.size(0));
  return {.index = index,
          .weights = shares(gates.gather(-1, index)),
          .balance = gates.flatten(0, 1).mean(0).sub_(1 / experts).square().sum() * experts};
}

}  // namespace fractus::moe
