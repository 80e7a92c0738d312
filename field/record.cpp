// The record, and the trace: an observer of the dispatcher, so that views and composite operations are steps too.
#include "field/record.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <mutex>
#include <utility>

namespace fractus::field {
namespace {

struct State {
  std::mutex mutex;
  Record record;
  std::optional<Remark> stopped_by;
  std::function<std::string()> place;
  std::optional<at::CallbackHandle> observer;
};

State& state() {
  static auto* const the_state = new State;  // autograd's threads outlive main
  return *the_state;
}

std::string current_place() {
  std::function<std::string()> ask;
  {
    const std::lock_guard lock(state().mutex);
    ask = state().place;
  }
  std::string place = ask ? ask() : "";  // unlocked: it may wait for Python's own lock
  if (place.empty())
    if (const auto node = torch::autograd::get_current_node()) place = node->name();
  return place;
}

void add_shapes(const c10::IValue& value, std::vector<Shape>& shapes) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined() && tensor.device().is_privateuseone()) shapes.push_back(tensor.sizes().vec());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add_shapes(tensor, shapes);
  }
}

void observed(const at::RecordFunction& function, at::ObserverContext*) {
  Step step;
  for (const c10::IValue& value : function.outputs()) add_shapes(value, step.shapes);
  if (step.shapes.empty()) return;
  step.operation = function.name();
  const std::lock_guard lock(state().mutex);
  state().record.trace.push_back(std::move(step));
}

std::string at_place(const std::string& place) { return place.empty() ? "" : " at " + place; }

}  // namespace

std::string plain_name(const std::string& schema_name) {
  const std::string name = schema_name.substr(0, schema_name.find('.'));
  const bool in_place = name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_';
  return in_place ? name.substr(0, name.size() - 1) : name;
}

void remark(const std::string& kind, const std::string& operation, const std::string& detail) {
  Remark noted{kind, plain_name(operation), current_place(), detail, 1};
  const std::lock_guard lock(state().mutex);
  for (Remark& other : state().record.remarks) {
    const std::int64_t count = std::exchange(other.count, 1);
    const bool alike = other == noted;
    other.count = count + (alike ? 1 : 0);
    if (alike) return;
  }
  state().record.remarks.push_back(std::move(noted));
}

void refuse(const std::string& operation, const std::string& why, const std::string& kind) {
  const std::string name = plain_name(operation), place = current_place();
  {
    const std::lock_guard lock(state().mutex);
    if (!state().record.stop) {
      state().record.stop = FieldStatus::not_algebraic;
      state().stopped_by = Remark{kind, name, place, why, 1};
    }
  }
  TORCH_CHECK(false, name, at_place(place), ": not algebraic here: ", why);
}

void pole(const std::string& operation) {
  const std::string name = plain_name(operation), place = current_place();
  {
    const std::lock_guard lock(state().mutex);
    if (!state().record.stop) state().record.stop = FieldStatus::pole;
  }
  TORCH_CHECK(false, name, at_place(place), ": a division by 0 in the field: the draw has to be drawn again");
}

void set_place(std::function<std::string()> place) {
  const std::lock_guard lock(state().mutex);
  state().place = std::move(place);
}

void start_record(bool traced) {
  finish_record();
  if (!traced) return;
  auto callback =
      at::RecordFunctionCallback(
          [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; },
          [](const at::RecordFunction& function, at::ObserverContext* context) { observed(function, context); })
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION});
  state().observer = at::addGlobalCallback(callback);
}

Record record_so_far() {
  const std::lock_guard lock(state().mutex);
  Record record = state().record;
  if (state().stopped_by) record.remarks.push_back(*state().stopped_by);
  return record;
}

Record finish_record() {
  if (state().observer) at::removeCallback(*std::exchange(state().observer, std::nullopt));
  Record record = record_so_far();
  const std::lock_guard lock(state().mutex);
  state().record = {};
  state().stopped_by.reset();
  return record;
}

}  // namespace fractus::field
