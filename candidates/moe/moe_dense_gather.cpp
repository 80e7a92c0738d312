// All experts on all tokens, in one batched product a layer, then the chosen ones gathered: the path of production
// where E <= 2 top_k.
#include "candidates/moe/inputs.h"

namespace fractus::moe {
namespace {

using at::Tensor;

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const Inputs in = checked(inputs, scalars);
  const Routing routing = routed(in.phases, in.mu, in.steepness, in.top_k);
  const Tensor x = in.h.flatten(0, 1), index = routing.index.flatten(0, 1);  // (N,d), (N,top_k)
  const Tensor of_all =
      said(x.unsqueeze(0).expand({in.experts.count(), -1, -1}), in.experts).transpose(0, 1);  // (N,E,d)
  const Tensor chosen = of_all.gather(1, index.unsqueeze(-1).expand({-1, -1, x.size(1)}));
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
