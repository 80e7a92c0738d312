// The two references of linear_attention: `looped` is the definition read aloud, `einsum` the masked sum over all pairs
// of tokens that production once took as its ground truth. Slow and plain on purpose. They share no code with a
// candidate; what both do the same way (the quotient, absent carries) is written twice, here and there.
#include "contracts/linear_attention.h"

#include <algorithm>

#include "contracts/form.h"

namespace fractus::linear_attention {
namespace {

using at::Tensor;

struct Inputs {
  Tensor q, k, v;
  Tensor S0, z0;  // zeros where the caller gave none
  std::int64_t tokens;
};

Inputs checked(const Tensors& inputs) {
  check_inputs(contract(), inputs);
  const Tensor &q = inputs[0], &S0 = inputs[3], &z0 = inputs[4];
  const std::int64_t groups = q.size(0), width = q.size(2);
  return {.q = q,
          .k = inputs[1],
          .v = inputs[2],
          .S0 = S0.defined() ? S0 : at::zeros({groups, width, width}, q.options()),
          .z0 = z0.defined() ? z0 : at::zeros({groups, width}, q.options()),
          .tokens = q.size(1)};
}

// Nothing to sum: the outputs are copies, since an output is never the caller's own tensor.
Tensors without_tokens(const Inputs& in) { return {at::empty_like(in.q), in.S0.clone(), in.z0.clone()}; }

// numerator (..., D) over denominator (...). The divisor of a cut row is 1, so that neither its value nor its gradient
// ever meets a division by zero: `where` multiplies what it drops by 0, and 0 times infinity is NaN.
Tensor quotient(const Tensor& numerator, const Tensor& denominator) {
  const Tensor keep = denominator.abs() > cut;
  const Tensor divisor = at::where(keep, denominator + epsilon, at::ones_like(denominator));
  return at::where(keep.unsqueeze(-1), numerator / divisor.unsqueeze(-1), at::zeros_like(numerator));
}

// Sums over the key dimension by hand instead of bmm: the definition shall not rest on the matrix products that the
// candidates are made of.
Tensors looped(const Tensors& inputs, const Scalars&, const Settings&) {
  const Inputs in = checked(inputs);
  if (in.q.numel() == 0) return without_tokens(in);
  Tensor S = in.S0, z = in.z0;
  std::vector<Tensor> rows;
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    const Tensor q = in.q.select(1, t), k = in.k.select(1, t), v = in.v.select(1, t);
    S = S + k.unsqueeze(2) * v.unsqueeze(1);
    z = z + k;
    rows.push_back(quotient((q.unsqueeze(2) * S).sum(1), (q * z).sum(-1)));
  }
  return {at::stack(rows, 1), S, z};
}

Tensors einsum(const Tensors& inputs, const Scalars&, const Settings&) {
  const Inputs in = checked(inputs);
  if (in.q.numel() == 0) return without_tokens(in);
  const Tensor mask = at::ones({in.tokens, in.tokens}, in.q.options()).tril();
  const Tensor outer = at::einsum("gtk,gtv->gtkv", {in.k, in.v});
  const Tensor S_all = at::einsum("tj,gjkv->gtkv", {mask, outer}) + in.S0.unsqueeze(1);
  const Tensor z_all = at::einsum("tj,gjk->gtk", {mask, in.k}) + in.z0.unsqueeze(1);
  const Tensor y = quotient(at::einsum("gtk,gtkv->gtv", {in.q, S_all}), at::einsum("gtk,gtk->gt", {in.q, z_all}));
  return {y, S_all.select(1, -1).clone(), z_all.select(1, -1).clone()};
}

// A group holds at once, beside y's rows, S and z: in a step the outer product or q * S, and the S before, 2 D*D, and a
// few rows, 5D; in stack all rows once more, T*D; throughout the zeros for an absent carry, D*D + D.
std::int64_t looped_extra_elements(const Dims& dims, const Settings&) {
  const std::int64_t groups = dims.at("G"), tokens = dims.at("T"), width = dims.at("D");
  return groups * (std::max(tokens * width, 2 * width * width + 5 * width) + width * width + width) + 4;
}

// `outer`, the order of its elements that a matrix product wants, and the product, each G*T*D*D (later: S_all, and the
// order that q wants); the mask, T*T, twice while its triangle is taken; z_all and rows; the zeros for an absent carry.
std::int64_t einsum_extra_elements(const Dims& dims, const Settings&) {
  const std::int64_t groups = dims.at("G"), tokens = dims.at("T"), width = dims.at("D");
  return groups * (3 * tokens * width * width + 2 * tokens * width + 4 * tokens + width * width + width) +
         2 * tokens * tokens + 4;
}

const Registration registered_looped{{
    .kernel = "linear_attention",
    .name = "looped",
    .role = Role::reference,
    .summary = "the definition, one token at a time",
    .declares = {.extra_elements = looped_extra_elements},
    .run = looped,
}};

const Registration registered_einsum{{
    .kernel = "linear_attention",
    .name = "einsum",
    .role = Role::reference,
    .summary = "a (T,T) mask against the (G,T,D,D) outer products",
    .declares = {.extra_elements = einsum_extra_elements},
    .run = einsum,
}};

}  // namespace
}  // namespace fractus::linear_attention
