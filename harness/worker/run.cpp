#include "harness/worker/run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "harness/worker/allocator.h"
#include "harness/worker/serve.h"

namespace fractus::worker {
namespace {

using protocol::Clock;
using protocol::Placement;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::int64_t held_bytes(const Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided)
      bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

std::vector<std::optional<Placement>> placements(const protocol::Json& list) {
  std::vector<std::optional<Placement>> all;
  for (const protocol::Json& item : list)
    all.push_back(item.is_null() ? std::nullopt : std::optional(item.get<Placement>()));
  return all;
}

// The outputs that a cotangent flows into and that lead back to an input.
Tensors gradients_of(const Problem& problem, const Outcome& outcome, bool keep_graph) {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> cotangents;
  for (std::size_t i = 0; i < problem.cotangents.size(); ++i) {
    if (!problem.cotangents[i].defined() || i >= outcome.usable.size() || !outcome.usable[i]) continue;
    if (!outcome.outputs[i].requires_grad()) continue;
    outputs.push_back(outcome.outputs[i]);
    cotangents.push_back(problem.cotangents[i]);
  }
  Tensors gradients(problem.inputs.size());
  std::vector<at::Tensor> leaves;
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
    if (!problem.inputs[i].defined() || !problem.inputs[i].requires_grad()) continue;
    leaves.push_back(problem.inputs[i]);
    positions.push_back(i);
  }
  if (outputs.empty() || leaves.empty()) return gradients;
  const auto found =
      torch::autograd::grad(outputs, leaves, cotangents, keep_graph, /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < positions.size(); ++i) gradients[positions[i]] = found[i];
  return gradients;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.nbytes() == right.nbytes() &&
         std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

void second_backward(const Problem& problem, Outcome& outcome) {
  try {
    const Tensors again = gradients_of(problem, outcome, /*keep_graph=*/false);
    for (std::size_t i = 0; i < again.size(); ++i)
      if (!same_bits(outcome.gradients[i], again[i]))
        outcome.breaches.push_back(
            {"second-backward", fmt::format("the gradient of {} differs in a second backward through the same graph",
                                            problem.input_places[i]->name)});
  } catch (...) {
    outcome.breaches.push_back(
        {"second-backward", "a second backward through the same graph raised: " + exception_text()});
  }
}

at::Tensor random_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

void run_form(const Problem& problem, bool checked, Outcome& outcome) {
  const c10::AutoGradMode grad_mode(problem.record_graph);
  const at::Tensor state = checked ? random_state() : at::Tensor();
  restart_peak();
  const std::int64_t held = live_bytes();
  const auto start = Clock::now();
  outcome.outputs = problem.form->run(problem.inputs, problem.settings);
  outcome.forward_seconds = seconds_since(start);
  outcome.seconds = outcome.forward_seconds;
  const std::int64_t own = held_bytes(outcome.outputs);
  outcome.forward_peak_extra_bytes = std::max<std::int64_t>(0, peak_bytes() - held - own);

  if (checked) {
    check_outputs(problem, outcome);
  } else {
    outcome.usable.assign(outcome.outputs.size(), true);
  }
  if (problem.backward) {
    const auto backward_start = Clock::now();
    outcome.gradients = gradients_of(problem, outcome, /*keep_graph=*/checked && problem.backward_twice);
    outcome.seconds += seconds_since(backward_start);
  }
  outcome.peak_extra_bytes = std::max<std::int64_t>(0, peak_bytes() - held - own - held_bytes(outcome.gradients));
  if (!checked) return;
  if (problem.backward && problem.backward_twice) second_backward(problem, outcome);
  if (!same_bits(state, random_state()))
    outcome.breaches.push_back({"random-state", "the global random generator was used or seeded"});
}

}  // namespace

at::Tensor tensor_at(const std::shared_ptr<protocol::Mapping>& memory, const Placement& placement) {
  const at::ScalarType type = placement.dtype == DType::float32   ? at::kFloat
                              : placement.dtype == DType::float64 ? at::kDouble
                                                                  : at::kLong;
  return at::from_blob(
      memory->data() + placement.base, placement.shape, placement.strides, placement.storage_offset, [memory](void*) {},
      at::TensorOptions().dtype(type));
}

Problem read_problem(const protocol::Json& request, const protocol::Descriptor& memory) {
  Problem problem;
  const auto& kernel = request.at("kernel").get_ref<const std::string&>();
  const auto& form = request.at("form").get_ref<const std::string&>();
  problem.form = find_form(kernel, form);
  if (problem.form == nullptr) throw std::invalid_argument(fmt::format("no form of {} is named '{}'", kernel, form));
  problem.settings = problem.form->settings;
  for (const auto& [key, value] : request.at("settings").get<Settings>()) {
    if (!problem.settings.contains(key)) throw std::invalid_argument(fmt::format("{} has no setting '{}'", form, key));
    problem.settings[key] = value;
  }
  request.at("threads").get_to(problem.threads);
  request.at("backward_twice").get_to(problem.backward_twice);
  request.at("outputs").get_to(problem.output_places);
  problem.gradient_places = placements(request.at("gradients"));
  problem.input_places = placements(request.at("inputs"));
  problem.memory = std::make_shared<protocol::Mapping>(memory.get(), request.at("bytes").get<std::int64_t>());

  for (const auto& place : placements(request.at("cotangents"))) {
    problem.cotangents.push_back(place ? tensor_at(problem.memory, *place) : at::Tensor());
    problem.backward |= place.has_value();
  }
  problem.record_graph = problem.backward || request.at("record_graph").get<bool>();
  const auto requires_grad = request.at("requires_grad").get<std::vector<bool>>();
  for (std::size_t i = 0; i < problem.input_places.size(); ++i) {
    const auto& place = problem.input_places[i];
    at::Tensor tensor = place ? tensor_at(problem.memory, *place) : at::Tensor();
    if (tensor.defined() && problem.record_graph && i < requires_grad.size() && requires_grad[i] &&
        tensor.is_floating_point())
      tensor.set_requires_grad(true);
    problem.inputs.push_back(std::move(tensor));
  }
  return problem;
}

Outcome run(const Problem& problem, bool checked) {
  if (at::get_num_threads() != problem.threads) at::set_num_threads(problem.threads);
  Outcome outcome;
  try {
    run_form(problem, checked, outcome);
    return outcome;
  } catch (const c10::OutOfMemoryError&) {
    outcome.status = Status::out_of_memory;
    outcome.message = exception_text();
  } catch (const std::bad_alloc&) {
    outcome.status = Status::out_of_memory;
    outcome.message = "std::bad_alloc";
  } catch (...) {
    outcome.status = Status::raised;
    outcome.message = exception_text();
  }
  outcome.outputs.clear();
  outcome.gradients.clear();
  return outcome;
}

}  // namespace fractus::worker
