// `block_chunked` under recompute in backward: the forward keeps nothing but its inputs, and the backward runs the core
// once more, with a graph this time. Same core, same inputs, same kernels: the same bits (Chen et al., Training Deep
// Nets with Sublinear Memory Cost, 2016). The core is pure, so the state that it returns advances once.
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "candidates/block_core/core.h"

namespace fractus::block_core {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

struct Plan : torch::CustomClassHolder {
  Config config;
  std::vector<bool> present;  // by input of the contract
  Plan(const Config& config, std::vector<bool> present) : config(config), present(std::move(present)) {}

  // The contract's inputs from those that are there.
  Tensors all(at::TensorList given) const {
    Tensors inputs;
    std::size_t next = 0;
    for (const bool is_present : present) inputs.push_back(is_present ? given[next++] : Tensor());
    return inputs;
  }
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static variable_list forward(AutogradContext* context, at::TensorList given, const c10::intrusive_ptr<Plan>& plan) {
    // A cotangent that nobody sends stays absent: a 0 in its place would change the bits of what it is added to.
    context->set_materialize_grads(false);
    context->save_for_backward(given.vec());
    context->saved_data["plan"] = c10::IValue::make_capsule(plan);
    variable_list outputs = core(plan->all(given), plan->config);
    context->mark_non_differentiable({outputs[2], outputs[3], outputs[4]});
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const auto capsule = context->saved_data.at("plan").toCapsule();
    const Plan& plan = static_cast<const Plan&>(*capsule);
    variable_list given, leaves, roots, seeds;
    std::vector<std::size_t> places;
    for (const Tensor& saved : context->get_saved_variables()) {
      const std::size_t i = given.size();
      given.push_back(saved.detach());
      if (!context->needs_input_grad(i)) continue;
      given.back().requires_grad_();
      leaves.push_back(given.back()), places.push_back(i);
    }
    {
      const c10::AutoGradMode recorded(true);
      const Tensors outputs = core(plan.all(given), plan.config);
      for (const std::size_t o : {0, 1})
        if (cotangents[o].defined() && outputs[o].requires_grad())
          roots.push_back(outputs[o]), seeds.push_back(cotangents[o]);
    }
    variable_list gradients(given.size() + 1);
    if (roots.empty() || leaves.empty()) return gradients;
    const auto found = torch::autograd::grad(roots, leaves, seeds, /*retain_graph=*/false, /*create_graph=*/false,
                                             /*allow_unused=*/true);
    for (std::size_t k = 0; k < places.size(); ++k) gradients[places[k]] = found[k];
    return gradients;
  }
};

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings& settings) {
  const Config config = checked(inputs, scalars, settings);
  std::vector<bool> present;
  variable_list given;
  for (const Tensor& input : inputs) {
    present.push_back(input.defined());
    if (input.defined()) given.push_back(input);
  }
  return Recomputed::apply(at::TensorList(given), c10::make_intrusive<Plan>(config, std::move(present)));
}

const Registration registered{{
    .kernel = "block_core",
    .name = "block_ckpt",
    .role = Role::candidate,
    .summary = "block_chunked, its core run once more in backward; a graph keeps the inputs alone",
    .settings = {{"block", 64}},
    .declares = {.recomputes = "block_chunked"},
    .run = run,
}};

}  // namespace
}  // namespace fractus::block_core
