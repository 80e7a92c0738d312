#include "contracts/form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

namespace fractus {
namespace {

std::vector<Form>& registry() {
  static std::vector<Form> all;
  return all;
}

struct Origins {
  std::map<std::pair<std::string, std::string>, std::string> file;  // by kernel and name
  std::vector<std::string> complaints;
};

Origins& origins() {
  static Origins all;
  return all;
}

// Names, of settings too, go into file names, command lines and lists.
bool is_plain(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// Why a form cannot be kept; empty where it can, and its name is then taken.
std::string objection(const Form& form, const std::source_location& where) {
  if (!is_plain(form.name)) return "needs a name of letters, digits and underscores";
  if (find_contract(form.kernel) == nullptr)
    return fmt::format("is of kernel '{}', which has no contract", form.kernel);
  if (!form.run) return "has nothing to run";
  for (const auto& [parameter, value] : form.settings) {
    if (!is_plain(parameter)) return "has a setting whose name is not of letters, digits and underscores";
    if (value < 1) return fmt::format("has {} as the default of {}; wanted 1 or more", value, parameter);
  }
  const auto [taken, is_new] = origins().file.emplace(std::pair(form.kernel, form.name), where.file_name());
  return is_new ? "" : fmt::format("has a name that {} has taken for {}", taken->second, form.kernel);
}

std::string text_of(const at::Tensor& tensor) {
  return fmt::format("{} of {} on {}", to_string(tensor.sizes().vec()), c10::toString(tensor.scalar_type()),
                     tensor.device().str());
}

std::string wanted_text(const TensorSpec& spec) { return fmt::format("({})", fmt::join(spec.dims, ", ")); }

[[noreturn]] void refuse_missing(const Contract& contract, const TensorSpec& spec) {
  throw std::invalid_argument(
      fmt::format("{}: {} is missing; wanted a tensor {}", contract.kernel, spec.name, wanted_text(spec)));
}

}  // namespace

const std::vector<Form>& forms() { return registry(); }

const Form* find_form(std::string_view kernel, std::string_view name) {
  for (const Form& form : registry())
    if (form.kernel == kernel && form.name == name) return &form;
  return nullptr;
}

const Form& add_form(Form form) { return registry().emplace_back(std::move(form)); }

const std::vector<std::string>& refused_registrations() { return origins().complaints; }

Registration::Registration(Form form, std::source_location where) {
  const std::string why = objection(form, where);
  if (why.empty())
    registry().push_back(std::move(form));
  else
    origins().complaints.push_back(fmt::format("{}: the form '{}' {}", where.file_name(), form.name, why));
}

void check_inputs(const Contract& contract, const Tensors& inputs) {
  if (inputs.size() != contract.inputs.size())
    throw std::invalid_argument(
        fmt::format("{}: wanted {} tensors, got {}", contract.kernel, contract.inputs.size(), inputs.size()));

  const at::Tensor* first = nullptr;
  std::string first_name;
  Dims dims;
  std::map<std::string, std::string> set_by;  // which tensor fixed an extent, for the message
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = contract.inputs[i];
    const at::Tensor& tensor = inputs[i];
    if (!tensor.defined()) {
      if (may_be_absent(spec)) continue;
      refuse_missing(contract, spec);
    }
    if (tensor.dim() != static_cast<std::int64_t>(spec.dims.size()))
      throw std::invalid_argument(fmt::format("{}: {}: wanted {} dimensions {}, got {}", contract.kernel, spec.name,
                                              spec.dims.size(), wanted_text(spec), text_of(tensor)));
    if (spec.dtype) {
      if (tensor.scalar_type() != at::kLong)
        throw std::invalid_argument(
            fmt::format("{}: {}: wanted int64, got {}", contract.kernel, spec.name, text_of(tensor)));
    } else if (first == nullptr) {
      first = &tensor, first_name = spec.name;
      if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble)
        throw std::invalid_argument(
            fmt::format("{}: {}: wanted float32 or float64, got {}", contract.kernel, spec.name, text_of(tensor)));
    } else if (tensor.scalar_type() != first->scalar_type() || tensor.device() != first->device()) {
      throw std::invalid_argument(fmt::format("{}: {}: wanted {} on {} like {}, got {}", contract.kernel, spec.name,
                                              c10::toString(first->scalar_type()), first->device().str(), first_name,
                                              text_of(tensor)));
    }
    for (std::size_t d = 0; d < spec.dims.size(); ++d) {
      const std::string& symbol = spec.dims[d];
      set_by.emplace(symbol, spec.name);
      if (agrees(symbol, tensor.size(static_cast<std::int64_t>(d)), dims)) continue;
      const std::string known = dims.contains(symbol)
                                    ? fmt::format("{} = {} as in {}", symbol, dims.at(symbol), set_by.at(symbol))
                                    : wanted_text(spec);
      throw std::invalid_argument(
          fmt::format("{}: {}: wanted {}, got {}", contract.kernel, spec.name, known, text_of(tensor)));
    }
  }
  settle_sets(contract, dims);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = contract.inputs[i];
    if (spec.optional || inputs[i].defined() == belongs(spec, dims)) continue;
    if (!inputs[i].defined()) refuse_missing(contract, spec);
    const std::string& decides = spec.only_with.empty() ? spec.only_without : spec.only_with;
    const std::string why = set_by.contains(decides) ? " as in " + set_by.at(decides) : "";
    throw std::invalid_argument(fmt::format("{}: {}: wanted none where {} = {}{}, got {}", contract.kernel, spec.name,
                                            decides, dims.at(decides), why, text_of(inputs[i])));
  }
}

Dims dims_of(const Contract& contract, const Tensors& inputs, const Scalars& scalars) {
  Dims dims;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t d = 0; inputs[i].defined() && d < contract.inputs[i].dims.size(); ++d)
      agrees(contract.inputs[i].dims[d], inputs[i].size(static_cast<std::int64_t>(d)), dims);
  settle_sets(contract, dims);
  for (const ScalarSpec& scalar : contract.scalars)
    if (scalar.whole) dims[scalar.name] = static_cast<std::int64_t>(scalars.at(scalar.name));
  return dims;
}

}  // namespace fractus
