// The reference of moe: one expert after the other, on the tokens that chose it, differentiated by autograd. It shares
// no code with a candidate; what both refuse the same way is written twice, here and there.
#include "contracts/moe.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "contracts/form.h"
#include "reference/parts.h"

namespace fractus {
namespace reference {

using at::Tensor;

namespace {

// The tanh form, spelled out.
Tensor tanh_gelu(const Tensor& x) {
  const Tensor inner = std::sqrt(2 / std::numbers::pi) * (x + moe::gelu_cubic * x * x * x);
  return 0.5 * x * (1 + inner.tanh());
}

// x (M,d) -> (M,d).
Tensor expert(const Tensor& x, const Experts& of, std::int64_t e) {
  const Tensor b1 = of.b1[e], b2 = of.b2[e];
  if (of.w1.defined()) return at::matmul(tanh_gelu(at::matmul(x, of.w1[e]) + b1), of.w2[e]) + b2;
  const Tensor scale1 = of.scale1[e].squeeze(), scale2 = of.scale2[e].squeeze();
  const Tensor a = tanh_gelu(scale1 * at::matmul(at::matmul(x, of.V1[e]), of.U1[e].t()) + b1);
  return scale2 * at::matmul(at::matmul(a, of.V2[e]), of.U2[e].t()) + b2;
}

}  // namespace

Tensor mixture(const Tensor& x, const Tensor& index, const Tensor& weights, const Experts& experts) {
  Tensor out = at::zeros_like(x);
  for (std::int64_t e = 0; e < experts.b1.size(0); ++e) {
    const Tensor places = (index == e).nonzero();  // (M,2): token and slot
    if (places.size(0) == 0) continue;
    const Tensor token = places.select(1, 0), slot = places.select(1, 1);
    const Tensor weight = weights.index_select(0, token).gather(1, slot.unsqueeze(1));
    out = out.index_add(0, token, weight * expert(x.index_select(0, token), experts, e));
  }
  return out;
}

}  // namespace reference

namespace moe {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("moe: " + what); }

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  const Tensor &h = inputs[0], &phases = inputs[1], &mu = inputs[2];
  if (h.size(2) == 0) refuse("h: wanted at least one column, got " + to_string(h.sizes().vec()));
  if (phases.size(2) == 0) refuse("phases: wanted at least one oscillator, got " + to_string(phases.sizes().vec()));
  if (mu.size(0) == 0) refuse("expert_phases: wanted at least one expert, got none");
  reference::check_routing("moe", scalars.at("kappa"), scalars.at("temperature"), scalars.at("top_k"), mu.size(0));
  reference::check_finite("moe", "h", h, "row");
  reference::check_finite("moe", "phases", phases, "row");
  for (std::size_t i = 2; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].numel() > 0)
      reference::check_finite("moe", contract().inputs[i].name, inputs[i].reshape({mu.size(0), -1}), "expert");
}

Tensors moe_looped(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check(inputs, scalars);
  const Tensor &h = inputs[0], &phases = inputs[1];
  const reference::Experts experts{inputs[3], inputs[4], inputs[5],  inputs[6],  inputs[7],
                                   inputs[8], inputs[9], inputs[10], inputs[11], inputs[12]};
  const reference::Gate gate =
      reference::gate(phases, inputs[2].detach(), scalars.at("kappa") / scalars.at("temperature"),
                      static_cast<std::int64_t>(scalars.at("top_k")));
  const Tensor out = reference::mixture(h.flatten(0, 1), gate.index.flatten(0, 1), gate.weights.flatten(0, 1), experts);
  return {out.view(h.sizes()), gate.balance};
}

const Registration registered{{
    .kernel = "moe",
    .name = "moe_looped",
    .role = Role::reference,
    .summary = "one expert after the other, on the tokens that chose it",
    .run = moe_looped,
}};

}  // namespace
}  // namespace moe
}  // namespace fractus
