// Like `chunked_ce`, with the vocabulary in blocks too: a running maximum and a running sum for each row (Milakov and
// Gimelshein, Online normalizer calculation for softmax, 2018). Nothing is made twice: the loss is linear in its
// cotangent, so that both gradients are made along with it, chunk by chunk, and backward has them scaled.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

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

struct Result {
  Tensor loss, dh, dW;  // the gradients of those that were asked for, at a cotangent of 1
};

// By row: a = max_i x_i and s = sum_i exp(x_i - a) so far, and wanted = x_target. a and log s stay apart: their sum
// would round log s to the spacing of a, which a common offset of the logits makes as coarse as it likes.
struct Statistics {
  Tensor a, s, wanted;  // (rows, 1)

  explicit Statistics(const Tensor& h_rows)
      : a(at::full({h_rows.size(0), 1}, -std::numeric_limits<double>::infinity(), h_rows.options())),
        s(at::zeros_like(a)),
        wanted(at::zeros_like(a)) {}

  // Leaves exp(x - a) in the place of x, with the a that it returns.
  Tensor add(const Tensor& x, const Hits& hits) {
    wanted = at::where(hits.inside, x.gather(1, hits.column), wanted);
    const Tensor before = std::exchange(a, at::maximum(a, x.amax(1, /*keepdim=*/true)));
    s.mul_((before - a).exp_()).add_(x.sub_(a).exp_().sum(1, /*keepdim=*/true));
    return a;
  }
};

// A chunk's gradients are made as soon as its rows' sums are known, while its exponentials are still there: three
// matrix products in all, where recomputing takes four. With p_n = softmax(x_n): dx_n = (p_n - onehot(target_n)) / N,
// dh = dx W, dW = dx^T h. The factor 1 / N is left to the products, which take one for nothing.
Result online(const Inputs& in, std::int64_t block_length, bool needs_h, bool needs_W) {
  const auto& [h, W, targets, chunk] = in;
  const bool keeps = needs_h || needs_W;
  const double scale = 1 / static_cast<double>(h.size(0));
  const Tensor losses = at::empty({h.size(0), 1}, h.options());
  Result result;
  if (needs_h) result.dh = at::empty(h.sizes(), h.options());
  if (needs_W) result.dW = at::empty(W.sizes(), W.options());
  const Tensor buffer = at::empty({chunk * (keeps ? W.size(0) : block_length)}, h.options());
  const Tensor product = needs_h ? at::empty({chunk, h.size(1)}, h.options()) : Tensor();
  const std::vector<Block> all_blocks = blocks(W.size(0), block_length);
  for (const Rows& rows : chunks(h.size(0), chunk)) {
    const Tensor h_rows = rows.of(h).contiguous(), targets_rows = rows.of(targets);
    Statistics statistics(h_rows);
    std::vector<Tensor> exponentials, maxima;  // of each block, where gradients are made
    for (const Block& block : all_blocks) {
      const Tensor x = block.logits(buffer.slice(0, keeps ? rows.count * block.first : 0), h_rows, W);
      const Tensor a = statistics.add(x, {block, targets_rows});
      if (keeps) exponentials.push_back(x), maxima.push_back(a);
    }
    const auto& [a, s, wanted] = statistics;
    rows.of(losses).copy_(s.log().sub_(wanted - a));
    for (std::size_t b = 0; b < exponentials.size(); ++b) {
      const Block& block = all_blocks[b];
      const Hits hits(block, targets_rows);
      const Tensor dx = exponentials[b].mul_((maxima[b] - a).exp_().div_(s));
      dx.scatter_add_(1, hits.column, hits.inside.to(dx.scalar_type()).neg_());
      if (needs_h) {
        // Not added up by the product itself, which may add to dh several times a block: see add_depth.
        Tensor part = b == 0 ? rows.of(result.dh) : product.narrow(0, 0, rows.count);
        at::addmm_out(part, part, dx, block.of(W), /*beta=*/0, /*alpha=*/scale);
        if (b != 0) rows.of(result.dh).add_(part);
      }
      if (needs_W) {
        Tensor part = block.of(result.dW);
        at::addmm_out(part, part, dx.t(), h_rows, /*beta=*/rows.first == 0 ? 0 : 1, scale);
      }
    }
  }
  result.loss = losses.mean();
  return result;
}

struct OnlineLoss : torch::autograd::Function<OnlineLoss> {
  // `records`: whether a graph is wanted, which is known outside alone.
  static Tensor forward(AutogradContext* context, const Tensor& h, const Tensor& W, const Tensor& targets,
                        std::int64_t chunk, std::int64_t block_length, bool records) {
    Result result =
        online({h, W, targets, chunk}, block_length, records && h.requires_grad(), records && W.requires_grad());
    context->save_for_backward({h, W, targets});
    context->saved_data["chunk"] = chunk;
    context->saved_data["block"] = block_length;
    context->saved_data["dh"] = std::move(result.dh);
    context->saved_data["dW"] = std::move(result.dW);
    return result.loss;
  }

  // The first backward gives away what the forward made, so that nothing is held twice. Another one through the same
  // graph makes it again, by the same steps, to the same bits.
  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const variable_list saved = context->get_saved_variables();
    Tensor dh = taken(context, "dh"), dW = taken(context, "dW");
    {
      const c10::NoGradGuard by_hand;
      const bool lacks_h = context->needs_input_grad(0) && !dh.defined(),
                 lacks_W = context->needs_input_grad(1) && !dW.defined();
      if (lacks_h || lacks_W) {
        Result again = online({saved[0], saved[1], saved[2], context->saved_data.at("chunk").toInt()},
                              context->saved_data.at("block").toInt(), lacks_h, lacks_W);
        if (lacks_h) dh = std::move(again.dh);
        if (lacks_W) dW = std::move(again.dW);
      }
      const auto g = cotangents[0].item<double>();
      for (const Tensor& gradient : {dh, dW})
        if (gradient.defined() && g != 1) gradient.mul_(g);
    }
    forbid_second_derivative(dh, dW, saved[0], saved[1], cotangents[0]);
    return {dh, dW, {}, {}, {}, {}};
  }

 private:
  static Tensor taken(AutogradContext* context, const char* name) {
    return std::exchange(context->saved_data.at(name), Tensor()).toTensor();
  }
};

std::int64_t block_length(std::int64_t words, const Settings& settings) {
  return std::min(words, settings.at("block"));
}

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings& settings) {
  const Inputs in = checked(inputs, scalars);
  const Tensor loss = OnlineLoss::apply(in.h, in.W, in.targets, in.chunk, block_length(in.W.size(0), settings),
                                        c10::GradMode::is_enabled());
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
  return chunk * block + 2 * rows + 16 * chunk + (chunk + block) * width + 64;
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
    .summary =
        "ce_chunk rows and a block of the vocabulary at a time, a running maximum and sum; gradients made in forward",
    .settings = {{"block", 4096}},
    .declares = {.extra_elements = extra_elements, .add_depth = add_depth},
    .run = run,
}};

}  // namespace
}  // namespace fractus::cross_entropy
