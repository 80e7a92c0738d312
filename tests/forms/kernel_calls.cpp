#include "tests/forms/kernel_calls.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace fractus::kernel_calls {
namespace {

Tensor cotangent_of(const Tensor& y, std::size_t which, const Case& c, double times) {
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(100 + which);
  return (at::randn(y.sizes(), random, at::kDouble) * (c.cotangent * times)).to(y.scalar_type());
}

// Rounding leaves less than this, and all faults more.
std::string difference(const std::string& what, const Tensor& got, const Tensor& wanted, const Case& c) {
  if (!got.defined() && (!wanted.defined() || (wanted == 0).all().item<bool>())) return "";
  if (!got.defined()) return what + ": none";
  const Tensor right = wanted.defined() ? wanted.detach() : at::zeros_like(got);
  if (got.sizes() != right.sizes()) return what + ": another shape";
  if (right.numel() == 0) return "";
  const Tensor apart = (got.detach().to(at::kDouble) - right.to(at::kDouble)).abs();
  const double scale = std::max(1e-3 * std::abs(c.cotangent), right.to(at::kDouble).abs().max().item<double>());
  return (apart <= (c.dtype == at::kDouble ? 1e-10 : 1e-4) * scale).all().item<bool>() ? "" : what + ": another value";
}

Tensors to(const Tensors& tensors, at::ScalarType dtype) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(x.defined() && x.is_floating_point() ? x.to(dtype) : x);
  return all;
}

Tensors clones(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(x.defined() ? x.detach().clone() : x);
  return all;
}

struct GlobalState {
  bool grad_mode = c10::GradMode::is_enabled();
  int threads = at::get_num_threads();
  Tensor random = at::detail::getDefaultCPUGenerator().get_state();

  bool is_same(const GlobalState& other) const {
    return grad_mode == other.grad_mode && threads == other.threads && at::equal(random, other.random);
  }
  void restore() const {
    c10::GradMode::set_enabled(grad_mode);
    at::set_num_threads(threads);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(random);
  }
};

std::string compared_outputs(const Kernel& kernel, const Case& c, const Tensors& outputs, const Under& exact) {
  const auto& specs = kernel.contract->outputs;
  if (outputs.size() != specs.size()) return "another number of outputs";
  for (std::size_t o = 0; o < specs.size(); ++o) {
    if (outputs[o].scalar_type() != (specs[o].dtype ? at::kLong : c.dtype)) return specs[o].name + ": another dtype";
    if (outputs[o].sizes() != exact.outputs[o].sizes()) return specs[o].name + ": another shape";
    if (!specs[o].differentiable && outputs[o].requires_grad()) return specs[o].name + ": attached";
  }
  const Tensors got = kernel.settled(outputs), wanted = kernel.settled(exact.outputs);
  for (std::size_t o = 0; o < specs.size(); ++o)
    if (std::string text = difference(specs[o].name, got[o], wanted[o], c); !text.empty()) return text;
  return "";
}

std::string compared(const Kernel& kernel, const Form& form, const Case& c) {
  const Tensors inputs = made(kernel, c, 2), before = clones(inputs);
  const Under exact = forward(kernel, kernel.form(kernel.reference), c, to(inputs, at::kDouble));
  const Tensors wanted = exact.gradients(kernel, c);
  if (c.crowded) forward(kernel, form, c, made(kernel, c, 3)).gradients(kernel, c, 5);
  const Under under = forward(kernel, form, c, inputs);
  std::vector<Under> others;
  for (std::uint64_t k = 0; c.crowded && k < 3; ++k) others.push_back(forward(kernel, form, c, made(kernel, c, 4 + k)));
  const Tensors gradients = under.gradients(kernel, c), first = clones(gradients);
  for (const Under& other : others) other.gradients(kernel, c, 7);

  if (std::string text = compared_outputs(kernel, c, under.outputs, exact); !text.empty()) return text;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (std::string text = difference("d" + kernel.contract->inputs[i].name, gradients[i], wanted[i], c); !text.empty())
      return text;
  const Tensors again = under.gradients(kernel, c, -2);
  for (std::size_t i = 0; i < again.size(); ++i)
    if (std::string text = difference("second backward", again[i], first[i].defined() ? first[i] * -2 : first[i], c);
        !text.empty())
      return text;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && !at::equal(inputs[i], before[i])) return "an input was modified";
  return "";
}

}  // namespace

const Case& Kernel::named(const std::string& name) const {
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.name == name; });
  if (found == cases.end()) throw std::out_of_range("no case " + name);
  return *found;
}

const Form& Kernel::form(const std::string& name) const {
  const Form* form = find_form(contract->kernel, name);
  if (form == nullptr) throw std::out_of_range("no form " + name);
  return *form;
}

Tensors made(const Kernel& kernel, const Case& c, std::uint64_t seed) {
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(seed);
  Named named;
  for (const TensorSpec& spec : kernel.contract->inputs) {
    const Tensor x = at::randn(shape_of(spec, c.dims), random, at::kDouble);
    const bool is_absent = std::find(c.absent.begin(), c.absent.end(), spec.name) != c.absent.end();
    if (belongs(spec, c.dims) && !is_absent) named[spec.name] = x;
  }
  if (c.adjust) c.adjust(named);
  Tensors inputs;
  for (const TensorSpec& spec : kernel.contract->inputs)
    inputs.push_back(named.contains(spec.name) ? named.at(spec.name).to(c.dtype) : Tensor());
  return inputs;
}

Tensors Under::gradients(const Kernel& kernel, const Case& c, double times) const {
  Tensors all(leaves.size());
  torch::autograd::variable_list roots, cotangents, wanted;
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (kernel.contract->outputs[o].differentiable && outputs[o].requires_grad())
      roots.push_back(outputs[o]), cotangents.push_back(cotangent_of(outputs[o], o, c, times));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].defined() && leaves[i].requires_grad()) wanted.push_back(leaves[i]), places.push_back(i);
  if (roots.empty() || wanted.empty()) return all;
  const auto found = torch::autograd::grad(roots, wanted, cotangents, /*retain_graph=*/true, false, true);
  for (std::size_t k = 0; k < places.size(); ++k) all[places[k]] = found[k];
  return all;
}

Under forward(const Kernel& kernel, const Form& form, const Case& c, const Tensors& inputs) {
  Under under;
  Tensors given;
  Scalars scalars = c.scalars;
  for (const ScalarSpec& spec : kernel.contract->scalars)
    if (spec.whole) scalars[spec.name] = static_cast<double>(c.dims.at(spec.name));
  const c10::AutoGradMode mode(!c.no_grad_mode);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool tracks = inputs[i].defined() && c.gradients && kernel.contract->inputs[i].differentiable;
    under.leaves.push_back(tracks ? inputs[i].detach().requires_grad_() : inputs[i]);
    given.push_back(tracks && c.computed ? under.leaves[i] * 1 : under.leaves[i]);
  }
  under.outputs = form.run(given, scalars, form.settings);
  if (c10::GradMode::is_enabled() == c.no_grad_mode) throw std::runtime_error("grad mode was changed");
  return under;
}

std::string broken(const Kernel& kernel, const Form& form, const Case& c) {
  const GlobalState state;
  at::set_num_threads(c.threads);
  const c10::AutoGradMode mode(!c.no_grad_mode);
  const GlobalState before;
  std::string text;
  try {
    text = compared(kernel, form, c);
  } catch (const std::exception& error) {
    text = std::string("threw: ") + error.what();
  }
  if (text.empty() && !before.is_same(GlobalState())) text = "global state";
  state.restore();
  return text;
}

std::vector<Row> common_rows(const std::string& stem) {
  std::vector<Row> rows{
      {"input_thirded_and_restored", "plain", ""},
      {"with_a_dimension", "plain", ""},
      {"in_double", "float32", "plain"},
      {"random_numbers_drawn", "plain", ""},
      {"threads_changed", "plain", ""},
      {"grad_mode_left_off", "plain", "no_grad_mode"},
      {"strides_ignored", "strided", "plain"},
      {"last_element_unwritten", "plain", ""},
      {"in_one_buffer", "crowded", "plain"},
      {"gradient_in_one_buffer", "crowded", "plain"},
      {"replayed_without_gradients", "crowded_without_gradients", "plain"},
      {"with_two_threads", "two_threads", "plain"},
      {"without_grad_mode", "no_grad_mode", "plain"},
      {"second_backward_adds_up", "plain", "no_gradients"},
      {"backward_remembered", "plain", "no_gradients"},
      {"first_cotangent", "times_minus_3", "no_gradients"},
      {"cotangent_without_sign", "plain", "no_gradients"},
      {"cotangent_at_most_1", "times_minus_3", "no_gradients"},
      {"gradient_bfloat16", "plain", "no_gradients"},
      {"gradient_float32", "plain", "float32"},
      {"gradient_of_last_row_lost", "plain", "no_gradients"},
      {"computed_input_detached", "computed", "plain"},
      {"bfloat16", "plain", ""},
      {"float32_inside", "plain", "float32"},
  };
  for (Row& row : rows) row.form = "wrong_" + stem + "_" + row.form;
  return rows;
}

std::vector<std::string> complaints(const Kernel& kernel, std::vector<Row> rows,
                                    const std::vector<std::string>& right_in_numbers) {
  std::vector<std::string> all;
  std::set<std::string> tested(right_in_numbers.begin(), right_in_numbers.end());
  for (const Row& row : rows) {
    tested.insert(row.form);
    const Form& form = kernel.form(row.form);
    // Its right case first: some faults remember what they have seen.
    if (!row.right_on.empty())
      if (const std::string text = broken(kernel, form, kernel.named(row.right_on)); !text.empty())
        all.push_back(fmt::format("{} is wrong on {}: {}", row.form, row.right_on, text));
    if (broken(kernel, form, kernel.named(row.wrong_on)).empty())
      all.push_back(fmt::format("{} is right on {}", row.form, row.wrong_on));
  }
  for (const std::string& name : right_in_numbers)
    for (const Case& c : kernel.cases)
      if (const std::string text = broken(kernel, kernel.form(name), c); !text.empty())
        all.push_back(fmt::format("{} is wrong on {}: {}", name, c.name, text));
  for (const Form& form : forms())
    if (form.kernel == kernel.contract->kernel && form.role == Role::wrong && !tested.contains(form.name))
      all.push_back(fmt::format("{} is in no table", form.name));
  return all;
}

}  // namespace fractus::kernel_calls
