// Forms of cross_entropy for the tests of the worker: scalars, whole-number tensors, tied inputs, declared depths.
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "contracts/form.h"

namespace fractus {
namespace {

using Run = std::function<at::Tensor(const Tensors& in, const Scalars& scalars)>;

Registration form(const char* name, Run run, std::function<std::int64_t(const Dims&, const Settings&)> depth = {}) {
  return Registration{{.kernel = "cross_entropy",
                       .name = std::string("test_") + name,
                       .role = Role::wrong,
                       .summary = "a test of the worker",
                       .declares = {.add_depth = std::move(depth)},
                       .run = [run = std::move(run)](const Tensors& in, const Scalars& scalars,
                                                     const Settings&) -> Tensors { return {run(in, scalars)}; }}};
}

// A sum over h and the targets' rows of W, so that both have a gradient that is easy to say.
at::Tensor scores(const Tensors& in) { return (in[0] * in[1].index_select(0, in[2])).sum(); }

at::Tensor told(const Tensors& in, const Scalars& scalars) {
  return at::full({}, 1000 * scalars.at("ce_chunk") + in[2].sum().item<double>(), in[0].options());
}

// What it does to the gradient that W already has.
template <void (*touch)(at::Tensor&)>
struct Touching : torch::autograd::Function<Touching<touch>> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& W, const at::Tensor& holder) {
    context->save_for_backward({W});
    return W.sum() + holder.sum() * 0;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    at::Tensor W = context->get_saved_variables()[0];
    touch(W);
    return {gradients[0].expand_as(W), at::Tensor()};
  }
};

void clear(at::Tensor& W) { W.mutable_grad() = at::Tensor(); }
void replace(at::Tensor& W) { W.mutable_grad() = at::zeros_like(W); }
void leave(at::Tensor&) {}

template <void (*touch)(at::Tensor&)>
at::Tensor touching(const Tensors& in, const Scalars&) {
  return Touching<touch>::apply(in[1], in[0].detach());
}

const Registration registered[] = {
    form("told", told),
    form("scores", [](const Tensors& in, const Scalars&) { return scores(in); }),
    form(
        "depth", [](const Tensors& in, const Scalars&) { return scores(in); },
        [](const Dims& dims, const Settings&) { return 100 * dims.at("V") + dims.at("ce_chunk"); }),
    form(
        "depth_raises", [](const Tensors& in, const Scalars&) { return scores(in); },
        [](const Dims&, const Settings&) -> std::int64_t { throw std::runtime_error("what for"); }),
    form(
        "depth_of_nothing", [](const Tensors& in, const Scalars&) { return scores(in); },
        [](const Dims&, const Settings&) -> std::int64_t { return 0; }),
    form("leaves_grad", touching<leave>),
    form("clears_grad", touching<clear>),
    form("replaces_grad", touching<replace>),
};

}  // namespace
}  // namespace fractus
