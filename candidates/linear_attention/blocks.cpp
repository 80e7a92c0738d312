#include "candidates/linear_attention/blocks.h"

#include <algorithm>
#include <utility>

#include "candidates/linear_attention/divide.h"

namespace fractus::linear_attention {

using at::Tensor;

namespace {

struct State {
  Tensor S, z;
};

// y of one block. The state holds all tokens before the block, the scores those inside it.
Tensor read(const Tensor& q, const Tensor& k, const Tensor& v, const State& before) {
  const Tensor scores = at::bmm(q, k.mT()).tril_();
  const Tensor denominator = scores.sum(-1).add_(at::bmm(q, before.z.unsqueeze(-1)).squeeze(-1));
  return divide_in_place(at::bmm(scores, v).baddbmm_(q, before.S), denominator);
}

State update(const State& before, const Tensor& k, const Tensor& v) {
  return {at::baddbmm(before.S, k.mT(), v), before.z + k.sum(1)};
}

}  // namespace

Tensors by_blocks(Inputs in, std::int64_t block) {
  if (in.empty()) return carry_alone(in);
  // split and not narrow: the backward of n narrows adds up n tensors of the full size, that of a split is one cat.
  const auto qs = in.q.split(block, 1), ks = in.k.split(block, 1), vs = in.v.split(block, 1);
  State state{std::move(in.S0), std::move(in.z0)};  // zeros for an absent carry are freed by the first update
  std::vector<Tensor> ys;
  for (std::size_t b = 0; b < qs.size(); ++b) {
    ys.push_back(read(qs[b], ks[b], vs[b], state));
    state = update(state, ks[b], vs[b]);
  }
  return {at::cat(ys, 1), state.S, state.z};
}

std::int64_t blocks_extra_elements(const Dims& dims, std::int64_t block) {
  const std::int64_t groups = dims.at("G"), tokens = dims.at("T"), width = dims.at("D");
  const std::int64_t longest = std::min(block, tokens);
  // A group holds, beside the part of y, S and z that is made already (or takes the place that they will need),
  //   - in read: the scores n*n and a few rows, 4n (den, its terms, divisor, mask); the numerator is y's block;
  //   - in update: the state before beside the state after it, D*D + D, and k.sum, D;
  //   - in cat: all block outputs once more, T*D.
  // The comparison with the cut holds its constant as a tensor of one double: a few elements, whatever the extents.
  const std::int64_t in_read = longest * longest + 4 * longest, in_update = width * width + 2 * width;
  return groups * std::max({in_read, in_update, tokens * width}) + 4;
}

}  // namespace fractus::linear_attention
