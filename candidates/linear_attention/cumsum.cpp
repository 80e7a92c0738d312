#include "candidates/linear_attention/cumsum.h"

#include "candidates/linear_attention/divide.h"

namespace fractus::linear_attention {

using at::Tensor;

Tensors by_cumsum(const Inputs& in) {
  if (in.empty()) return carry_alone(in);
  // In place where no backward formula reads what is overwritten: the (G,T,D,D) tensor is held once, not three times.
  const Tensor S_all = (in.k.unsqueeze(3) * in.v.unsqueeze(2)).cumsum_(1).add_(in.S0.unsqueeze(1));
  const Tensor z_all = in.k.cumsum(1).add_(in.z0.unsqueeze(1));
  const Tensor numerator = at::matmul(in.q.unsqueeze(2), S_all).squeeze(2);
  const Tensor y = divide_in_place(numerator, (in.q * z_all).sum(-1));
  return {y, S_all.select(1, -1).clone(), z_all.select(1, -1).clone()};
}

std::int64_t cumsum_extra_elements(const Dims& dims) {
  const std::int64_t groups = dims.at("G"), tokens = dims.at("T"), width = dims.at("D");
  // Held at once, a group: S_all T*D*D, z_all T*D, q * z_all T*D, rows (den, its terms, divisor, mask) 3T, the zeros
  // for an absent carry D*D + D. The numerator is y. The comparison with the cut holds its constant as a tensor of one
  // double: a few elements, whatever the extents.
  return groups * (tokens * width * width + 2 * tokens * width + 3 * tokens + width * width + width) + 4;
}

namespace {

Tensors run(const Tensors& inputs, const Scalars&, const Settings&) { return by_cumsum(checked(inputs)); }

const Registration registered{{
    .kernel = "linear_attention",
    .name = "cumsum",
    .role = Role::candidate,
    .summary = "cumulative sums over the (G,T,D,D) outer products",
    .declares = {.extra_elements = [](const Dims& dims, const Settings&) { return cumsum_extra_elements(dims); }},
    .run = run,
}};

}  // namespace
}  // namespace fractus::linear_attention
