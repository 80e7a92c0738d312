// Like `chunked_ce`, with the vocabulary in blocks too: a running maximum and a running sum for each row (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018). What they end at is kept for backward, which is left
// with one pass over the blocks.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "candidates/cross_entropy/inputs.h"

namespace fractus::cross_entropy {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

// The words of one block. `buffer` has room for a chunk's rows of a whole block.
struct Block {
  std::int64_t first, count;

  Tensor of(const Tensor& by_word) const { return by_word.narrow(0, first, count); }

  Tensor logits(const Tensor& buffer, const Tensor& h, const Tensor& W) const {
    Tensor x = buffer.narrow(0, 0, h.size(0) * count).view({h.size(0), count});
    return at::mm_out(x, h, of(W).t());
  }
};

// Where in a block the rows' targets are: a column for every row, and which rows it holds for.
struct Hits {
  Tensor column, inside;  // (rows, 1)

  Hits(const Block& block, const Tensor& targets) : column((targets - block.first).unsqueeze(1)) {
    inside = column.ge(0).logical_and_(column.lt(block.count));
    column.clamp_(0, block.count - 1);
  }
};

std::vector<Block> blocks(std::int64_t words, std::int64_t length) {
  std::vector<Block> all;
  for (std::int64_t first = 0; first < words; first += length) all.push_back({first, std::min(length, words - first)});
  return all;
}

// By row: a = max_i x_i, s = sum_i exp(x_i - a), wanted = x_target. a and log s stay apart: their sum would round log s
// to the spacing of a, which a common offset of the logits makes as coarse as it likes.
struct Statistics {
  Tensor a, s, wanted;  // (N, 1)

  explicit Statistics(const Tensor& h)
      : a(at::full({h.size(0), 1}, -std::numeric_limits<double>::infinity(), h.options())),
        s(at::zeros_like(a)),
        wanted(at::zeros_like(a)) {}

  void add(const Rows& rows, const Tensor& x, const Hits& hits) const {
    const Tensor before = rows.of(a), sum = rows.of(s), target = rows.of(wanted);
    target.copy_(at::where(hits.inside, x.gather(1, hits.column), target));
    const Tensor now = at::maximum(before, x.amax(1, /*keepdim=*/true));
    sum.mul_(before.sub_(now).exp_()).add_(x.sub_(now).exp_().sum(1, /*keepdim=*/true));
    before.copy_(now);
  }
};

struct OnlineLoss : torch::autograd::Function<OnlineLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& h, const Tensor& W, const Tensor& targets,
                        std::int64_t chunk, std::int64_t block_length) {
    const Statistics statistics(h);
    const Tensor buffer = at::empty({chunk * block_length}, h.options());
    for (const Rows& rows : chunks(h.size(0), chunk)) {
      const Tensor h_rows = rows.of(h).contiguous(), targets_rows = rows.of(targets);
      for (const Block& block : blocks(W.size(0), block_length))
        statistics.add(rows, block.logits(buffer, h_rows, W), {block, targets_rows});
    }
    const auto& [a, s, wanted] = statistics;
    context->save_for_backward({h, W, targets, a, s});
    context->saved_data["chunk"] = chunk;
    context->saved_data["block"] = block_length;
    return s.log().sub_(wanted.sub_(a)).mean();
  }

  // With p_n = softmax(x_n): dx_n = (p_n - onehot(target_n)) g / N, dh = dx W, dW = dx^T h. The factor g / N is left to
  // the products, which take one for nothing.
  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &h = saved[0], &W = saved[1], &targets = saved[2], &a = saved[3], &s = saved[4];
    Tensor dh, dW;
    {
      const c10::NoGradGuard by_hand;
      const std::int64_t chunk = context->saved_data.at("chunk").toInt();
      const std::int64_t block_length = context->saved_data.at("block").toInt();
      const double scale = gradient_scale(cotangents[0], h.size(0));
      if (context->needs_input_grad(0)) dh = at::empty(h.sizes(), h.options());
      if (context->needs_input_grad(1)) dW = at::empty(W.sizes(), W.options());
      const Tensor buffer = at::empty({chunk * block_length}, h.options());
      const Tensor product = dh.defined() ? at::empty({chunk, h.size(1)}, h.options()) : Tensor();
      for (const Rows& rows : chunks(h.size(0), chunk)) {
        const Tensor h_rows = rows.of(h).contiguous(), targets_rows = rows.of(targets);
        for (const Block& block : blocks(W.size(0), block_length)) {
          const Hits hits(block, targets_rows);
          const Tensor dx = block.logits(buffer, h_rows, W).sub_(rows.of(a)).exp_().div_(rows.of(s));
          dx.scatter_add_(1, hits.column, hits.inside.to(dx.scalar_type()).neg_());
          if (dh.defined()) {
            // Not added up by the product itself, which may add to dh several times a block: see add_depth.
            Tensor part = block.first == 0 ? rows.of(dh) : product.narrow(0, 0, rows.count);
            at::addmm_out(part, part, dx, block.of(W), /*beta=*/0, /*alpha=*/scale);
            if (block.first != 0) rows.of(dh).add_(part);
          }
          if (dW.defined()) {
            Tensor part = block.of(dW);
            at::addmm_out(part, part, dx.t(), h_rows, /*beta=*/rows.first == 0 ? 0 : 1, scale);
          }
        }
      }
    }
    return once_differentiable({dh, dW, {}, {}, {}});
  }
};

std::int64_t block_length(std::int64_t words, const Settings& settings) {
  return std::min(words, settings.at("block"));
}

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings& settings) {
  const Inputs in = checked(inputs, scalars);
  const Tensor loss = OnlineLoss::apply(in.h, in.W, in.targets, in.chunk, block_length(in.W.size(0), settings));
  require_finite(in, loss);
  return {loss};
}

// One block of the chunk's logits; the statistics of all rows and, at the end, their losses; the chunk's rows of
// several kinds, of which columns are whole numbers of 8 bytes; the chunk of h and the block of W once more where a
// matrix product does not take their strides; a few single numbers.
std::int64_t extra_elements(const Dims& dims, const Settings& settings) {
  const std::int64_t rows = dims.at("N"), width = dims.at("d"), ce_chunk = dims.at("ce_chunk");
  const std::int64_t chunk = ce_chunk == 0 ? rows : std::min(ce_chunk, rows);
  const std::int64_t block = block_length(dims.at("V"), settings);
  return chunk * block + 6 * rows + 12 * chunk + (chunk + block) * width + 64;
}

// A term of the normaliser is one of at most `block` in its block's sum, whatever the order of that, and each block
// that follows adds once to what holds it; a term of dh likewise, since a block's product is made apart and added as a
// whole. The normaliser is besides multiplied once a block by an exponential: two more roundings that each block brings
// it, counted here like additions.
std::int64_t add_depth(const Dims& dims, const Settings& settings) {
  const std::int64_t words = dims.at("V"), block = block_length(words, settings);
  return block + 3 * ((words + block - 1) / block);
}

const Registration registered{{
    .kernel = "cross_entropy",
    .name = "chunked_ce_online",
    .role = Role::candidate,
    .summary = "ce_chunk rows and a block of the vocabulary at a time: a running maximum and sum, kept for backward",
    .settings = {{"block", 1024}},
    .declares = {.extra_elements = extra_elements, .add_depth = add_depth},
    .run = run,
}};

}  // namespace
}  // namespace fractus::cross_entropy
