// The reference of moe_gate: the definition line by line, differentiated by autograd. It shares no code with a
// candidate; what both refuse the same way is written twice, here and there.
#include "contracts/moe_gate.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/form.h"

namespace fractus::moe_gate {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe_gate: " + what); }

// The first row that holds a number that is not finite, counted over the whole batch; -1 where there is none.
std::int64_t bad_row(const Tensor& rows) {
  const Tensor bad = rows.detach().isfinite().all(-1).logical_not().flatten().nonzero();
  return bad.numel() == 0 ? -1 : bad[0][0].item<std::int64_t>();
}

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &phases = inputs[0], &expert_phases = inputs[1];
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  const std::int64_t experts = expert_phases.size(0);
  if (experts == 0) refuse("expert_phases: wanted at least one expert, got none");
  const double kappa = scalars.at("kappa"), temperature = scalars.at("temperature"), top_k = scalars.at("top_k");
  if (!std::isfinite(kappa)) refuse(fmt::format("kappa: wanted a finite number, got {}", kappa));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!(std::abs(kappa / temperature) <= steepest))
    refuse(fmt::format("kappa: wanted kappa / temperature of at most {}, got {} / {}", steepest, kappa, temperature));
  if (!(top_k >= 1 && top_k <= static_cast<double>(experts)) || top_k != std::floor(top_k))
    refuse(fmt::format("top_k: wanted a whole number from 1 to {}, got {}", experts, top_k));
  if (const std::int64_t row = bad_row(phases); row >= 0)
    refuse(fmt::format("phases: wanted finite values, got one that is not in row {}", row));
  if (const std::int64_t expert = bad_row(expert_phases.unsqueeze(1)); expert >= 0)
    refuse(fmt::format("expert_phases: wanted finite values, got {} of expert {}", expert_phases[expert].item<double>(),
                       expert));
}

// x over its sum, equal shares where the sum is at or below the cut. Such a sum is replaced by 1 before the division,
// so that neither value nor gradient of what is dropped can be NaN.
Tensor shares(const Tensor& x) {
  const Tensor sum = x.sum(-1, /*keepdim=*/true), keep = sum > cut;
  const Tensor equal = at::full({}, 1.0 / static_cast<double>(x.size(-1)), x.options());
  return at::where(keep, x / at::where(keep, sum, at::ones_like(sum)), equal);
}

Tensors gate_plain(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check(inputs, scalars);
  const Tensor &phases = inputs[0], mu = inputs[1].detach();
  const auto experts = static_cast<double>(mu.size(0));
  const Tensor theta = at::atan2(phases.sin().sum(-1), phases.cos().sum(-1));
  const Tensor g = at::exp(scalars.at("kappa") / scalars.at("temperature") * at::cos(theta.unsqueeze(-1) - mu));
  const Tensor gates = shares(g);
  const auto [largest, index] = gates.topk(static_cast<std::int64_t>(scalars.at("top_k")), -1);
  const Tensor mean = gates.flatten(0, 1).mean(0);
  return {gates, index, shares(largest), experts * (mean - 1 / experts).square().sum()};
}

const Registration registered{{
    .kernel = "moe_gate",
    .name = "gate_plain",
    .role = Role::reference,
    .summary = "the definition line by line, differentiated by autograd",
    .run = gate_plain,
}};

}  // namespace
}  // namespace fractus::moe_gate
