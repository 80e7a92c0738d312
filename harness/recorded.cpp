#include "harness/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <stdexcept>
#include <utility>

#include "properties/fields.h"

namespace fractus {
namespace {

using nlohmann::json;

// Of moe_gate's weights, for every token; into its gates nothing flows.
constexpr const char* one_cotangent = "weights_cotangent";

// "chunk0.dparam.moe.U1_f64": a group's tensors are recorded under its singular, "param.".
std::string group_prefix(const TensorSpec& spec) {
  return spec.group.empty() ? "" : spec.group.substr(0, spec.group.size() - 1) + ".";
}

std::string suffix_of(DType dtype) { return dtype == DType::float64 ? "_f64" : ""; }

// The factor of a scalar output in the loss that was differentiated, "sum(out*g_out) + 0.5*lb"; 1 where none is named.
double factor_of(const std::string& loss, const std::string& output) {
  std::smatch found;
  return std::regex_search(loss, found, std::regex("([0-9.]+)\\*" + output + "\\b")) ? std::stod(found[1]) : 1.0;
}

// A cotangent that is recorded once for the last extent, for all entries of the others.
std::vector<double> repeated(const std::vector<double>& values, std::int64_t count) {
  std::vector<double> all;
  while (static_cast<std::int64_t>(all.size()) < count) all.insert(all.end(), values.begin(), values.end());
  return all;
}

}  // namespace

Recorded::Recorded(std::filesystem::path file, std::shared_ptr<const std::vector<Array>> arrays, json entry,
                   std::string prefix)
    : file_(std::move(file)), arrays_(std::move(arrays)), entry_(std::move(entry)), prefix_(std::move(prefix)) {}

void Recorded::fail(const std::string& what) const {
  throw std::runtime_error(fmt::format("'{}': {}", file_.string(), what));
}

const Array* Recorded::find(const std::string& name) const {
  for (const std::string& full : {prefix_ + name, name})
    for (const Array& array : *arrays_)
      if (array.name == full) return &array;
  return nullptr;
}

const Array* Recorded::find(const std::string& before, const TensorSpec& spec, const std::string& behind) const {
  if (const Array* found = find(before + group_prefix(spec) + spec.name + behind)) return found;
  return find(before + spec.name + behind);  // a buffer, which is no parameter
}

const Array* Recorded::cotangent(const TensorSpec& output) const {
  for (const std::string& name : {"g" + output.name, "g_" + output.name})
    if (const Array* found = find(name)) return found;
  return output.name == "topk_weights" ? find(one_cotangent) : nullptr;
}

// What the engine's configuration leaves out is as usual.
double Recorded::scalar(const Contract& contract, const ScalarSpec& spec) const {
  const bool has_config = entry_.contains("config");
  const json& where = has_config ? entry_.at("config") : entry_;
  if (const auto found = where.find(spec.name); found != where.end() && found->is_number()) return found->get<double>();
  if (has_config && contract.usual.contains(spec.name)) return contract.usual.at(spec.name);
  fail(fmt::format("nothing tells the scalar {}", spec.name));
}

Array Recorded::fitted(const Array* found, const std::string& sought, const std::string& name, DType dtype,
                       const Shape& wanted) const {
  if (found == nullptr) fail(fmt::format("tensor '{}' is missing", prefix_ + sought));
  if (found->shape != wanted)
    fail(fmt::format("tensor '{}': wanted shape {}, got {}", found->name, to_string(wanted), to_string(found->shape)));
  return {name, dtype, found->shape, found->values};
}

Case Recorded::case_of(const Driver& driver, DType dtype, const Dims& open) const {
  const Contract& contract = *driver.contract;
  Case c;
  c.kernel = contract.kernel;
  c.property = "golden";
  c.dtype = dtype;
  c.dims = open;
  c.fill = "recorded";
  for (const TensorSpec& spec : contract.inputs)
    if (const Array* found = find("", spec, ""))
      for (std::size_t d = 0; d < spec.dims.size() && d < found->shape.size(); ++d)
        agrees(spec.dims[d], found->shape[d], c.dims);
    else if (spec.optional)
      c.absent.push_back(spec.name);
  settle_sets(contract, c.dims);
  for (const ScalarSpec& spec : contract.scalars)
    if (spec.whole && !c.dims.contains(spec.name))
      c.dims[spec.name] = static_cast<std::int64_t>(scalar(contract, spec));
  for (const TensorSpec& spec : contract.inputs)
    for (const std::string& symbol : spec.dims)
      if (!is_number(symbol) && !c.dims.contains(symbol))
        fail(fmt::format("nothing tells the extent {}: tensor '{}' is missing or has too few dimensions", symbol,
                         prefix_ + group_prefix(spec) + spec.name));
  // A record says of every output what flows into it, but for one that says of one output alone.
  for (const TensorSpec& output : contract.outputs)
    if (output.differentiable && (output.dims.empty() || cotangent(output) != nullptr))
      c.cotangents.push_back(output.name);
    else if (output.differentiable && find(one_cotangent) == nullptr)
      fail(fmt::format("tensor '{}g{}' is missing", prefix_, output.name));
  return c;
}

Problem Recorded::problem_of(const Driver& driver, const Case& c) const {
  const Contract& contract = *driver.contract;
  Problem problem;
  for (const TensorSpec& spec : contract.inputs) {
    const bool is_absent = std::find(c.absent.begin(), c.absent.end(), spec.name) != c.absent.end();
    problem.inputs.emplace_back();
    if (is_absent || !belongs(spec, c.dims)) continue;
    // A carry is what the double run itself came to.
    const Array* own = c.dtype == DType::float64 ? find("", spec, "_f64") : nullptr;
    problem.inputs.back() = fitted(own != nullptr ? own : find("", spec, ""), group_prefix(spec) + spec.name, spec.name,
                                   spec.dtype.value_or(c.dtype), shape_of(spec, c.dims));
  }
  for (const ScalarSpec& spec : contract.scalars)
    problem.scalars[spec.name] = spec.whole ? static_cast<double>(c.dims.at(spec.name)) : scalar(contract, spec);
  const std::string loss = entry_.contains("cotangent") ? field<std::string>(entry_, "cotangent") : "";
  for (const TensorSpec& spec : contract.outputs) {
    problem.cotangents.emplace_back();
    if (std::find(c.cotangents.begin(), c.cotangents.end(), spec.name) == c.cotangents.end()) continue;
    const Shape shape = shape_of(spec, c.dims);
    const Array* found = cotangent(spec);
    if (found == nullptr) {  // a loss starts the backward by itself
      problem.cotangents.back() = Array{spec.name, c.dtype, {}, {factor_of(loss, spec.name)}};
    } else if (found->shape.size() == 1 && shape.size() > 1 && found->shape[0] == shape.back()) {
      problem.cotangents.back() = Array{spec.name, c.dtype, shape, repeated(found->values, element_count(shape))};
    } else {
      problem.cotangents.back() = fitted(found, found->name, spec.name, c.dtype, shape);
    }
  }
  return problem;
}

Answer Recorded::answer_of(const Driver& driver, const Case& c) const {
  const std::string suffix = suffix_of(c.dtype);
  Answer answer;
  for (const TensorSpec& spec : driver.contract->outputs)
    answer.outputs.push_back(fitted(find("", spec, suffix), spec.name + suffix, spec.name, spec.dtype.value_or(c.dtype),
                                    shape_of(spec, c.dims)));
  for (const TensorSpec& spec : driver.contract->inputs) {
    answer.gradients.emplace_back();
    if (!spec.differentiable || !belongs(spec, c.dims)) continue;
    answer.gradients.back() = fitted(find("d", spec, suffix), "d" + group_prefix(spec) + spec.name + suffix,
                                     "d" + spec.name, c.dtype, shape_of(spec, c.dims));
  }
  return answer;
}

std::vector<Recorded> recorded_calls(const std::filesystem::path& file, std::vector<Array> arrays, const json& entry) {
  const auto shared = std::make_shared<const std::vector<Array>>(std::move(arrays));
  std::vector<Recorded> calls;
  if (!entry.contains("chunks")) return {Recorded(file, shared, entry, "")};
  for (std::int64_t chunk = 0; chunk < field<std::int64_t>(entry, "chunks"); ++chunk)
    calls.emplace_back(file, shared, entry, fmt::format("chunk{}.", chunk));
  return calls;
}

}  // namespace fractus
