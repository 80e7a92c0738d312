#include "harness/worker/over_field.h"

#include <c10/core/GradMode.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>

#include "field/device.h"
#include "harness/worker/outside.h"
#include "harness/worker/run.h"

namespace fractus::worker {
namespace {

using protocol::Json;

// The device, which is opened at the first call that asks for it.
const field::Device& device() {
  static const field::Device opened = [] {
    const std::filesystem::path path =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fractus-field.so";
    void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    auto* const open = reinterpret_cast<field::OpenDevice*>(dlsym(library, "fractus_field"));
    if (open == nullptr) throw std::runtime_error(dlerror());
    field::Device device;
    open(device);
    if (const Language* const spoken = language()) {
      spoken->open_device();
      device.set_place(spoken->place);
    }
    return device;
  }();
  return opened;
}

at::Tensor on_device(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!tensor.defined()) return tensor;
  if (tensor.scalar_type() == at::kLong) return tensor.to(at::Device(at::kPrivateUse1, 0));
  return device().tensor_of(tensor.view(at::kLong), dtype);
}

// Inputs and cotangents as the form sees them. What they were made of stays where it is, for the check that nothing
// wrote there.
void move(Problem& problem, at::ScalarType dtype) {
  for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
    const bool wanted = problem.leaves[i].defined() && problem.leaves[i].requires_grad();
    const at::Tensor moved = on_device(problem.inputs[i].defined() ? problem.inputs[i].detach() : at::Tensor(), dtype);
    if (wanted) moved.set_requires_grad(true);
    problem.inputs[i] = problem.leaves[i] = moved;
  }
  for (at::Tensor& cotangent : problem.cotangents) cotangent = on_device(cotangent, dtype);
}

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return fmt::format("{} of {} on {}", to_string(tensor.sizes().vec()), c10::toString(tensor.scalar_type()),
                     tensor.device().str());
}

// Why a result cannot be read as elements of the field; empty where it can.
std::string objection(const std::string& name, const at::Tensor& tensor, const Shape& shape) {
  if (tensor.defined() && tensor.is_privateuseone() && tensor.is_floating_point() && tensor.sizes() == shape) return {};
  return fmt::format("{}: wanted {} of the field's own floats, got {}", name, to_string(shape), text_of(tensor));
}

void write(const Problem& problem, const protocol::Placement& place, const at::Tensor& result) {
  tensor_at(problem.memory, place).view(at::kLong).copy_(device().residues_of(result));
}

// Brings the results where the parent reads them, and says what cannot be brought.
std::string take(const Problem& problem, const Outcome& outcome, Json& answer) {
  if (outcome.outputs.size() != problem.output_places.size())
    return fmt::format("wanted {} outputs, got {}", problem.output_places.size(), outcome.outputs.size());
  for (std::size_t i = 0; i < outcome.outputs.size(); ++i) {
    const protocol::Placement& place = problem.output_places[i];
    if (std::string text = objection(place.name, outcome.outputs[i], place.shape); !text.empty()) return text;
    write(problem, place, outcome.outputs[i]);
  }
  for (std::size_t i = 0; i < problem.gradient_places.size(); ++i) {
    const auto& place = problem.gradient_places[i];
    const bool there = place && i < outcome.gradients.size() && outcome.gradients[i].defined();
    answer["gradients"].push_back(there);
    if (!there) continue;
    if (std::string text = objection(place->name, outcome.gradients[i], place->shape); !text.empty()) return text;
    write(problem, *place, outcome.gradients[i]);
  }
  return {};
}

const char* name(FieldStatus status) {
  return status == FieldStatus::ok              ? "ok"
         : status == FieldStatus::not_algebraic ? "not_algebraic"
         : status == FieldStatus::pole          ? "pole"
                                                : "failed";
}

}  // namespace

Json serve_over_field(const Json& request, const protocol::Descriptor& memory) {
  try {
    device();
  } catch (const std::exception& error) {
    return {{"no_device", error.what()}};  // our failure, and none of the form's
  }
  const int bits = request.at("bits").get<int>();
  Problem problem = read_problem(request, memory);
  device().use(bits);
  move(problem, bits == 31 ? at::kFloat : at::kDouble);
  device().start(request.at("traced").get<bool>());
  const Outcome outcome = run(problem, /*checked=*/false);
  const field::Record record = device().finish();

  const c10::NoGradGuard no_grad;
  Json answer{{"bits", bits},
              {"message", outcome.message},
              {"seconds", outcome.seconds},
              {"gradients", Json::array()},
              {"remarks", protocol::json_of(record.remarks)},
              {"trace", Json::array()}};
  FieldStatus status = record.stop.value_or(outcome.status == Status::ok ? FieldStatus::ok : FieldStatus::failed);
  if (status == FieldStatus::ok)
    if (std::string text = take(problem, outcome, answer); !text.empty()) {
      status = FieldStatus::failed;
      answer["message"] = std::move(text);
    }
  answer["status"] = name(status);
  for (const Step& step : record.trace) answer["trace"].push_back({step.operation, step.shapes});
  return answer;
}

}  // namespace fractus::worker
