#include "harness/worker/compiled.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <memory>
#include <set>

#include "harness/worker/language.h"

namespace fractus::worker {
namespace {

using c10::FunctionSchema;
using c10::IValue;

// An argument of the contract, tensor or scalar, as a schema has to take it.
struct Wanted {
  std::string name;
  const TensorSpec* tensor = nullptr;
  const ScalarSpec* scalar = nullptr;

  std::string spelled() const {
    const char* type = tensor != nullptr ? may_be_absent(*tensor) ? "Tensor?" : "Tensor"
                       : scalar->whole   ? "int"
                                         : "float";
    return fmt::format("{} {}", type, name);
  }
  bool fits(const c10::Type& type) const {
    if (scalar != nullptr)
      return (scalar->whole ? c10::IntType::get() : c10::TypePtr(c10::FloatType::get()))->isSubtypeOf(type);
    return may_be_absent(*tensor) ? type.isSubtypeOf(*c10::OptionalType::ofTensor())
                                  : c10::TensorType::get()->isSubtypeOf(type);
  }
};

std::vector<Wanted> wanted_of(const Contract& contract) {
  std::vector<Wanted> all;
  for (const TensorSpec& input : contract.inputs) all.push_back({.name = input.name, .tensor = &input});
  for (const ScalarSpec& scalar : contract.scalars) all.push_back({.name = scalar.name, .scalar = &scalar});
  return all;
}

// Where each argument of the contract goes among the schema's. By name where all of them have their names, else in
// their order.
struct Arguments {
  std::vector<Wanted> wanted;
  std::vector<std::size_t> place;  // by argument of the contract
  std::vector<IValue> rest;        // by argument of the schema; the defaults of those that the contract has not

  // Throws std::invalid_argument where the schema cannot take what the contract gives. `self`: a first argument that is
  // the module.
  Arguments(const FunctionSchema& schema, const Contract& contract, std::size_t self);
  std::vector<IValue> filled(const Tensors& inputs, const Scalars& scalars) const;
};

Arguments::Arguments(const FunctionSchema& schema, const Contract& contract, std::size_t self)
    : wanted(wanted_of(contract)) {
  const auto& arguments = schema.arguments();
  const auto misfit = [&](const std::string& why) {
    std::vector<std::string> spelled;
    for (const Wanted& each : wanted) spelled.push_back(each.spelled());
    return std::invalid_argument(
        fmt::format("its schema is {}; wanted ({}): {}", c10::str(schema), fmt::join(spelled, ", "), why));
  };
  bool by_name = true;
  for (const Wanted& each : wanted) {
    const auto index = schema.argumentIndexWithName(each.name);
    by_name = by_name && index.has_value();
    place.push_back(index ? static_cast<std::size_t>(*index) : 0);
  }
  for (std::size_t i = 0; i < place.size() && !by_name; ++i) place[i] = i + self;
  if (place.size() + self > arguments.size()) throw misfit("there are too few arguments");
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    const bool taken = a < self || std::find(place.begin(), place.end(), a) != place.end();
    if (!taken && !arguments[a].default_value())
      throw misfit(fmt::format("{} is no input and has no default", arguments[a].name()));
    if (a >= self) rest.push_back(arguments[a].default_value().value_or(IValue()));
  }
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto& argument = arguments[place[i]];
    if (!wanted[i].fits(*argument.type()))
      throw misfit(fmt::format("{} is a {}", argument.name(), argument.type()->str()));
    if (wanted[i].tensor != nullptr && may_be_absent(*wanted[i].tensor) &&
        argument.type()->kind() == c10::TypeKind::TensorType)
      throw misfit(fmt::format("{} may be absent, and the schema says Tensor", argument.name()));
    place[i] -= self;
  }
}

std::vector<IValue> Arguments::filled(const Tensors& inputs, const Scalars& scalars) const {
  std::vector<IValue> all = rest;
  for (std::size_t i = 0; i < place.size(); ++i) {
    const ScalarSpec* scalar = wanted[i].scalar;
    all[place[i]] = scalar == nullptr ? (inputs[i].defined() ? IValue(inputs[i]) : IValue())
                    : scalar->whole   ? IValue(static_cast<std::int64_t>(scalars.at(scalar->name)))
                                      : IValue(scalars.at(scalar->name));
  }
  return all;
}

at::Tensor tensor_from(const IValue& value, const std::string& name) {
  if (value.isTensor()) return value.toTensor();
  throw std::invalid_argument(fmt::format("{}: wanted a tensor, got {}", name, value.tagKind()));
}

Tensors outputs_from(std::vector<IValue> values, const Contract& contract) {
  if (values.size() == 1 && values[0].isTuple())
    values = values[0].toTupleRef().elements().vec();
  else if (values.size() == 1 && values[0].isTensorList())
    throw std::invalid_argument(fmt::format("wanted a tuple of {} tensors, got a list", contract.outputs.size()));
  if (values.size() != contract.outputs.size())
    throw std::invalid_argument(
        fmt::format("wanted a tuple of {} tensors, got {} values", contract.outputs.size(), values.size()));
  Tensors outputs;
  for (std::size_t i = 0; i < values.size(); ++i) outputs.push_back(tensor_from(values[i], contract.outputs[i].name));
  return outputs;
}

std::set<std::string> operator_names() {
  std::set<std::string> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) names.insert(c10::toString(name));
  return names;
}

}  // namespace

Form load_operator(const outside::Spec& spec, const Contract& contract) {
  at::set_num_threads(1);  // a pool of threads that exists when the process forks is lost to its children
  const std::set<std::string> before = operator_names();
  if (dlopen(std::filesystem::absolute(spec.path).c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    throw std::runtime_error(dlerror());
  const auto dot = spec.name.rfind('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {spec.name.substr(0, dot), dot == std::string::npos ? "" : spec.name.substr(dot + 1)});
  if (!found) {
    std::vector<std::string> added;
    for (const std::string& name : operator_names())
      if (!before.contains(name)) added.push_back(name);
    throw outside::NotThere(fmt::format("{} registers no operator {}", spec.path, spec.name), added);
  }
  const Arguments arguments(found->schema(), contract, 0);
  Form form;
  form.summary = c10::str(found->schema());
  form.run = [op = *found, arguments, &contract](const Tensors& inputs, const Scalars& scalars, const Settings&) {
    std::vector<IValue> stack = arguments.filled(inputs, scalars);
    op.callBoxed(stack);
    return outputs_from(std::move(stack), contract);
  };
  return form;
}

Form load_program(const outside::Spec& spec, const Contract& contract) {
  at::set_num_threads(1);
  const auto module = std::make_shared<torch::jit::Module>(torch::jit::load(spec.path));
  const auto forward = module->find_method("forward");
  if (!forward) throw std::invalid_argument("the program has no forward");
  const Arguments arguments(forward->function().getSchema(), contract, 1);
  Form form;
  form.summary = fmt::format("TorchScript {}", module->type()->str());
  form.run = [module, arguments, &contract](const Tensors& inputs, const Scalars& scalars, const Settings&) {
    return outputs_from({module->forward(arguments.filled(inputs, scalars))}, contract);
  };
  return form;
}

}  // namespace fractus::worker
