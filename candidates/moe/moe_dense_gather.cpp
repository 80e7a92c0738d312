// All experts on all tokens, in one batched product a layer, then the chosen ones gathered: the path of production
// where E <= 2 top_k.
#include "candidates/moe/inputs.h"

namespace fractus::moe {
namespace {

using at::Tensor;

// x (N,d) -> (E,N,d).
Tensor all_experts(const Tensor& x, const Experts& of) {
  const Tensor tokens = x.unsqueeze(0).expand({of.count(), -1, -1}), b1 = of.b1.unsqueeze(1), b2 = of.b2.unsqueeze(1);
  if (of.dense()) return at::baddbmm(b2, at::gelu(at::baddbmm(b1, tokens, of.w1), "tanh"), of.w2);
  const Tensor inner = at::bmm(at::bmm(tokens, of.V1), of.U1.mT()).mul(of.scale1).add_(b1);
  return at::bmm(at::bmm(at::gelu(inner, "tanh"), of.V2), of.U2.mT()).mul(of.scale2).add_(b2);
}

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const Inputs in = checked(inputs, scalars);
  const Routing routing = routed(in.phases, in.mu, in.steepness, in.top_k);
  const Tensor x = in.h.flatten(0, 1), index = routing.index.flatten(0, 1);  // (N,d), (N,top_k)
  const Tensor said = all_experts(x, in.experts).transpose(0, 1);            // (N,E,d)
  const Tensor chosen = said.gather(1, index.unsqueeze(-1).expand({-1, -1, x.size(1)}));
  const Tensor out = (chosen * routing.weights.flatten(0, 1).unsqueeze(-1)).sum(1);
  return {out.view(in.h.sizes()), routing.balance};
}

const Registration registered{{
    .kernel = "moe",
    .name = "moe_dense_gather",
    .role = Role::candidate,
    .summary = "all experts on all tokens, then the chosen ones gathered",
    .run = run,
}};

}  // namespace
}  // namespace fractus::moe
