// Each token's own experts' parameters gathered first, then one batched product a layer: the path of production where
// E > 2 top_k. A block of tokens at a time, since a token brings top_k experts' parameters along.
#include <vector>

#include "candidates/moe/inputs.h"

namespace fractus::moe {
namespace {

using at::Tensor;

// The tokens x (N,d), each by its own expert e (N) -> (N,d).
Tensor by_own_expert(const Tensor& x, const Tensor& e, const Experts& of) {
  const auto own = [&](const Tensor& parameter) { return parameter.index_select(0, e); };
  const Tensor row = x.unsqueeze(1), b1 = own(of.b1).unsqueeze(1), b2 = own(of.b2);  // (N,1,d)
  if (of.dense()) return at::bmm(at::gelu(at::baddbmm(b1, row, own(of.w1)), "tanh"), own(of.w2)).squeeze(1) + b2;
  const Tensor inner = at::bmm(at::bmm(row, own(of.V1)), own(of.U1).mT()).mul(own(of.scale1)).add_(b1);
  const Tensor outer = at::bmm(at::bmm(at::gelu(inner, "tanh"), own(of.V2)), own(of.U2).mT()).mul(own(of.scale2));
  return outer.squeeze(1) + b2;
}

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
    const Tensor said = by_own_expert(each, chosen[b].flatten(), in.experts).view({-1, in.top_k, in.h.size(2)});
    rows.push_back((said * weights[b].unsqueeze(-1)).sum(1));
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
