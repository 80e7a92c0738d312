// The form in production: the logits of ce_chunk rows at a time, made once more in backward.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "candidates/cross_entropy/inputs.h"

namespace fractus::cross_entropy {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

// exp(x_ni - a_n) of a chunk's rows, in the same memory for every chunk. `wanted`, where it is given, takes
// x_n,target - a_n on the way.
Tensor exponentials(const Tensor& buffer, const Tensor& h, const Tensor& W, const Tensor& targets, Tensor* wanted) {
  Tensor x = buffer.narrow(0, 0, h.size(0));
  at::mm_out(x, h, W.t());
  x.sub_(x.amax(1, /*keepdim=*/true));
  if (wanted != nullptr) *wanted = x.gather(1, targets.unsqueeze(1)).squeeze(1);
  return x.exp_();
}

struct ChunkedLoss : torch::autograd::Function<ChunkedLoss> {
  // The rows' losses are added up in double: one sum over all N, whatever the chunks.
  static Tensor forward(AutogradContext* context, const Tensor& h, const Tensor& W, const Tensor& targets,
                        std::int64_t chunk) {
    context->save_for_backward({h, W, targets});
    context->saved_data["chunk"] = chunk;
    const Tensor buffer = at::empty({chunk, W.size(0)}, h.options());
    const Tensor sum = at::zeros({}, h.options().dtype(at::kDouble));
    for (const Rows& rows : chunks(h.size(0), chunk)) {
      Tensor wanted;
      const Tensor e = exponentials(buffer, rows.of(h), W, rows.of(targets), &wanted);
      sum.add_(e.sum(1).log_().sub_(wanted).sum(at::kDouble));
    }
    return sum.div_(h.size(0)).to(h.scalar_type());
  }

  // With p_n = softmax(x_n): dx_n = (p_n - onehot(target_n)) g / N, dh = dx W, dW = dx^T h. The factor g / N is left to
  // the products, which take one for nothing.
  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &h = saved[0], &W = saved[1], &targets = saved[2];
    Tensor dh, dW;
    {
      const c10::NoGradGuard by_hand;
      const std::int64_t chunk = context->saved_data.at("chunk").toInt();
      const double scale = cotangents[0].item<double>() / static_cast<double>(h.size(0));
      if (context->needs_input_grad(0)) dh = at::empty(h.sizes(), h.options());
      if (context->needs_input_grad(1)) dW = at::empty(W.sizes(), W.options());
      const Tensor buffer = at::empty({chunk, W.size(0)}, h.options());
      const Tensor minus_one = at::full({1, 1}, -1, h.options());
      for (const Rows& rows : chunks(h.size(0), chunk)) {
        const Tensor dx = exponentials(buffer, rows.of(h), W, rows.of(targets), nullptr);
        dx.div_(dx.sum(1, /*keepdim=*/true));
        dx.scatter_add_(1, rows.of(targets).unsqueeze(1), minus_one.expand({rows.count, 1}));
        if (dh.defined()) {
          Tensor part = rows.of(dh);
          at::addmm_out(part, part, dx, W, /*beta=*/0, /*alpha=*/scale);
        }
        if (dW.defined()) at::addmm_out(dW, dW, dx.t(), rows.of(h), /*beta=*/rows.first == 0 ? 0 : 1, scale);
      }
    }
    forbid_second_derivative(dh, dW, h, W, cotangents[0]);
    return {dh, dW, {}, {}};
  }
};

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const Inputs in = checked(inputs, scalars);
  const Tensor loss = ChunkedLoss::apply(in.h, in.W, in.targets, in.chunk);
  require_finite(in, loss);
  return {loss};
}

// The chunk's logits; its rows of several kinds, and the checks of all targets; h's chunk and W once more where a
// matrix product does not take their strides; a few single numbers.
std::int64_t extra_elements(const Dims& dims, const Settings&) {
  const std::int64_t rows = dims.at("N"), width = dims.at("d"), words = dims.at("V"), ce_chunk = dims.at("ce_chunk");
  const std::int64_t chunk = ce_chunk == 0 ? rows : std::min(ce_chunk, rows);
  return chunk * words + 8 * chunk + rows + (chunk + words) * width + 64;
}

const Registration registered{{
    .kernel = "cross_entropy",
    .name = "chunked_ce",
    .role = Role::candidate,
    .summary = "the logits of ce_chunk rows at a time, made once more in backward",
    .declares = {.extra_elements = extra_elements},
    .run = run,
}};

}  // namespace
}  // namespace fractus::cross_entropy
