// cos(theta - mu) as cos theta cos mu + sin theta sin mu: one small matrix product, and no angle is ever made.
#include <torch/csrc/autograd/custom_function.h>

#include "candidates/moe_gate/inputs.h"
#include "candidates/moe_gate/routing.h"

namespace fractus::moe_gate {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

// (cos theta, sin theta) of the direction of (C, S), as (..., 2). Autograd would subtract from each cotangent its part
// along the direction, which cancels; what is left is its part across it, made here by itself:
// d theta = g_sin cos theta - g_cos sin theta, dS = d theta cos theta / R, dC = -d theta sin theta / R.
struct Direction : torch::autograd::Function<Direction> {
  static Tensor forward(AutogradContext* context, const Tensor& C, const Tensor& S) {
    const Tensor length = at::hypot(C, S);
    const Tensor is_point = length == 0;  // any direction is right, and atan2 takes that of theta = 0
    const Tensor safe = length.masked_fill(is_point, 1);
    const Tensor cosine = (C / safe).masked_fill_(is_point, 1), sine = S / safe;
    context->save_for_backward({cosine, sine, safe});
    return at::stack({cosine, sine}, -1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &cosine = saved[0], &sine = saved[1], &length = saved[2];
    const Tensor across = (cotangents[0].select(-1, 1) * cosine - cotangents[0].select(-1, 0) * sine) / length;
    return {-across * sine, across * cosine};
  }
};

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const Inputs in = checked(inputs, scalars);
  const Tensor direction = Direction::apply(in.phases.cos().sum(-1), in.phases.sin().sum(-1));
  const Tensor towards = at::stack({in.mu.cos(), in.mu.sin()});  // (2, E)
  const Tensor gates = shares(at::matmul(direction, towards * in.steepness).exp());
  const Tensor index = std::get<1>(gates.detach().topk(in.top_k, -1));
  return {gates, index, shares(gates.gather(-1, index)), load_balance(gates)};
}

const Registration registered{{
    .kernel = "moe_gate",
    .name = "gate_rotated",
    .role = Role::candidate,
    .summary = "cos(theta - mu) as a product of the directions of theta and mu; no angle is made",
    .run = run,
}};

}  // namespace
}  // namespace fractus::moe_gate
