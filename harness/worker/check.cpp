// What can be said of a form's outputs without a number in them.
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "harness/worker/run.h"

namespace fractus::worker {
namespace {

const char* dtype_name(at::ScalarType type) {
  return type == at::kFloat    ? "float32"
         : type == at::kDouble ? "float64"
         : type == at::kLong   ? "int64"
                               : c10::toString(type);
}

std::optional<Breach> misfit(const at::Tensor& output, const protocol::Placement& wanted) {
  if (!output.defined()) return Breach{"count", wanted.name + " is absent"};
  if (!output.is_cpu() || output.layout() != at::kStrided)
    return Breach{"device",
                  fmt::format("{}: wanted a plain tensor on the CPU, got one on {}{}", wanted.name,
                              output.device().str(), output.layout() == at::kStrided ? "" : " that is not strided")};
  if (dtype_name(output.scalar_type()) != name(wanted.dtype))
    return Breach{"dtype", fmt::format("{}: wanted {}, got {}", wanted.name, name(wanted.dtype),
                                       dtype_name(output.scalar_type()))};
  if (output.sizes() != at::IntArrayRef(wanted.shape))
    return Breach{"shape", fmt::format("{}: wanted {}, got {}", wanted.name, to_string(wanted.shape),
                                       to_string(output.sizes().vec()))};
  return std::nullopt;
}

struct Range {
  const std::byte* from;
  const std::byte* to;
  bool meets(const Range& other) const { return from < other.to && other.from < to; }
};

// From the first to behind the last byte of any element.
Range span_of(const at::Tensor& tensor) {
  const auto* from = static_cast<const std::byte*>(tensor.const_data_ptr());
  if (tensor.numel() == 0) return {from, from};
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {from, from + (last + 1) * static_cast<std::int64_t>(tensor.itemsize())};
}

// Two views may interleave without sharing an element, as the columns of [S | z] do.
bool share_elements(const at::Tensor& a, const at::Tensor& b) {
  const Range left = span_of(a);
  const Range right = span_of(b);
  if (!left.meets(right)) return false;
  const auto item = static_cast<std::int64_t>(a.itemsize());
  if (item != static_cast<std::int64_t>(b.itemsize()) || (left.from - right.from) % item != 0) return true;
  const std::byte* from = std::min(left.from, right.from);
  const at::Tensor marks = at::zeros({(std::max(left.to, right.to) - from) / item}, at::kBool);
  marks.as_strided(a.sizes(), a.strides(), (left.from - from) / item).fill_(true);
  return marks.as_strided(b.sizes(), b.strides(), (right.from - from) / item).any().item<bool>();
}

}  // namespace

void check_inputs_untouched(const Problem& problem, const Tensors& before, Outcome& outcome) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    const at::Tensor& now = problem.inputs[i];
    if (!now.defined() || !problem.input_places[i]) continue;
    std::string what;
    if (now.sizes() != before[i].sizes() || now.strides() != before[i].strides() ||
        now.const_data_ptr() != before[i].const_data_ptr())
      what = "was given another shape, other strides or other memory";
    else if (now.requires_grad() != before[i].requires_grad())
      what = now.requires_grad() ? "tracks gradients since the call" : "tracks gradients no more since the call";
    else if (problem.leaves[i].defined() && problem.leaves[i].grad().defined())
      what = "was given a gradient before any backward";
    if (!what.empty())
      outcome.breaches.push_back(
          {"modified-input", fmt::format("the caller's {} {}", problem.input_places[i]->name, what)});
  }
}

void check_outputs(const Problem& problem, Outcome& outcome) {
  const Contract& contract = *find_contract(problem.form->kernel);
  const std::vector<protocol::Placement>& wanted = problem.output_places;
  const Tensors& outputs = outcome.outputs;
  if (outputs.size() != wanted.size())
    outcome.breaches.push_back({"count", fmt::format("wanted {} outputs, got {}", wanted.size(), outputs.size())});

  outcome.usable.assign(wanted.size(), false);
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < std::min(outputs.size(), wanted.size()); ++i) {
    if (auto breach = misfit(outputs[i], wanted[i])) {
      outcome.breaches.push_back(std::move(*breach));
      continue;
    }
    outcome.usable[i] = true;
    if (!contract.outputs[i].differentiable && outputs[i].requires_grad())
      outcome.breaches.push_back(
          {"attached", fmt::format("{}: wanted a detached tensor, got one that leads back to the inputs: a backward "
                                   "through what becomes of it runs into this call",
                                   wanted[i].name)});
    for (std::size_t j = 0; j < problem.inputs.size(); ++j) {
      if (!problem.inputs[j].defined() || !problem.input_places[j]) continue;
      const std::byte* base = problem.memory->data() + problem.input_places[j]->base;
      if (span_of(outputs[i]).meets({base, base + problem.input_places[j]->storage_bytes}))
        outcome.breaches.push_back({"alias", fmt::format("{} lies in the memory of the input {}", wanted[i].name,
                                                         problem.input_places[j]->name)});
    }
    for (std::size_t j = 0; j < i; ++j)
      if (outcome.usable[j] && share_elements(outputs[i], outputs[j]))
        outcome.breaches.push_back(
            {"alias", fmt::format("{} shares elements with {}", wanted[i].name, wanted[j].name)});
  }
}

}  // namespace fractus::worker
