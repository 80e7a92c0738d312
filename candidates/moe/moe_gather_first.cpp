// Each token's own experts' parameters gathered first, then one batched product a layer: the path of production where
// E > 2 top_k. A block of tokens at a time, since a token brings top_k experts' parameters along.
#include <vector>

#include "candidates/moe/inputs.h"

namespace fractus::moe {
namespace {

using at::Tensor;

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings& settings) {
  const Inputs in = checked(inputs, scalars);
  const Routing routing = routed(in.phases, in.mu, in.steepness, in.top_k);
  if (in.h.numel() == 0) return {at::empty_like(in.h), routing.balance};
  // split and not narrow: the backward of n narrows adds up n tensors of the full size, that of a split is one cat.
  const std::int64_t block = settings.at("block");
  const auto tokens = in.h.flatten(0, 1).split(block), chosen = routing.index.flatten(0, 1).split(block),
             weights = routing.weights.flatten(0, 1).split(block);
  std::vector<Tensor> rows;
  for (std::size_t b = 0; b < tokens.size(); ++b) {
    const Tensor each = tokens[b].unsqueeze(1).expand({-1, in.top_k, -1}).flatten(0, 1);
    const Tensor by_own = said(each.unsqueeze(1), gathered(in.experts, chosen[b].flatten()));  // (block top_k, 1, d)
    rows.push_back((by_own.view({-1, in.top_k, in.h.size(2)}) * weights[b].unsqueeze(-1)).sum(1));
  }
  return {at::cat(rows).view(in.h.sizes()), routing.balance};
}

const Registration registered{{
    .kernel = "moe",
    .name = "moe_gather_first",
    .role = Role::candidate,
    .summary = "each token's own experts' parameters gathered, then one batched product a layer",
    .settings = {{"block", 64}},
    .run = run,
}};

}  // namespace
}  // namespace fractus::moe
