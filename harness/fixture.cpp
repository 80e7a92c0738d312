#include "harness/fixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "attest/files.h"
#include "harness/plan.h"
#include "properties/compare.h"
#include "properties/fields.h"
#include "reports/result.h"

namespace fractus {
namespace {

using nlohmann::json;

constexpr const char* format_name = "fractus-verify fixture 1";
constexpr double most_elements = 1e8;         // of one tensor; the training run's largest, W, has 64 million
constexpr std::size_t most_values = 200'000;  // 4 MB of text; a larger case is made again from its seed

json to_json(const std::vector<std::optional<Array>>& arrays) {
  json list = json::array();
  for (const auto& array : arrays)
    list.push_back(array ? json{{"name", array->name}, {"shape", array->shape}, {"values", array->values}} : json());
  return list;
}

// What is compared is what the file says: a number that its dtype does not hold would become another, or none.
void require_value(double value, const json& written, DType dtype, const std::string& where, const std::string& index) {
  const bool exact = !written.is_number_integer() || std::fabs(value) < 0x1p53;  // beyond, the reading rounds
  const double held = rounded(value, dtype);
  if (exact && std::isfinite(held) && held == value) return;
  throw std::invalid_argument(fmt::format("field '{}': wanted {} numbers, got {} at {}{}", where, fractus::name(dtype),
                                          written.dump(), index,
                                          std::isfinite(held) ? fmt::format(" (the nearest is {:.17g})", held) : ""));
}

std::vector<std::optional<Array>> arrays_from(const json& fixture, const char* name,
                                              const std::vector<TensorSpec>& specs, const Case& c) {
  const json list = field<json>(fixture, name);
  if (!list.is_array() || list.size() != specs.size())
    throw std::invalid_argument(fmt::format("field '{}': wanted {} tensors (null for an absent one), got {}", name,
                                            specs.size(),
                                            list.is_array() ? fmt::format("{}", list.size()) : list.type_name()));
  std::vector<std::optional<Array>> arrays;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (list[i].is_null()) {
      arrays.emplace_back();
      continue;
    }
    Array array;
    try {
      array = {field<std::string>(list[i], "name"), specs[i].dtype.value_or(c.dtype), field<Shape>(list[i], "shape"),
               field<std::vector<double>>(list[i], "values")};
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("field '{}', tensor {}: {}", name, specs[i].name, error.what()));
    }
    const Shape wanted = shape_of(specs[i], c.dims);
    if (array.name != specs[i].name || array.shape != wanted)
      throw std::invalid_argument(fmt::format("field '{}', tensor {}: wanted {} of shape {}, got {} of shape {}", name,
                                              i, specs[i].name, to_string(wanted), array.name, to_string(array.shape)));
    if (static_cast<std::int64_t>(array.values.size()) != element_count(wanted))
      throw std::invalid_argument(fmt::format("field '{}', tensor {}: wanted {} values for shape {}, got {}", name,
                                              specs[i].name, element_count(wanted), to_string(wanted),
                                              array.values.size()));
    for (std::size_t v = 0; v < array.values.size(); ++v)
      require_value(array.values[v], list[i].at("values")[v], array.dtype,
                    fmt::format("{}, tensor {}", name, specs[i].name), to_string(index_of(v, array.shape)));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// Every name is one of the contract's, and stands there once, else an edited file would quietly ask for something else.
// `may` says of which tensors the field may speak, `which` says it in words.
void require_names(const char* name, const std::vector<std::string>& names, const std::vector<TensorSpec>& specs,
                   bool (*may)(const TensorSpec&), const char* which) {
  std::vector<std::string> known;
  for (const TensorSpec& spec : specs)
    if (may(spec)) known.push_back(spec.name);
  for (const std::string& wanted : names) {
    if (!contains(known, wanted))
      throw std::invalid_argument(
          fmt::format("field '{}': wanted {} ({}), got '{}'", name, which, fmt::join(known, ", "), wanted));
    if (std::count(names.begin(), names.end(), wanted) > 1)
      throw std::invalid_argument(fmt::format("field '{}': '{}' stands there twice", name, wanted));
  }
}

// Values that are there where the case says that they are not, or the other way round, would replay another case.
void require_presence(const char* field, const std::vector<std::optional<Array>>& arrays,
                      const std::vector<TensorSpec>& specs, const char* named, const std::vector<std::string>& names,
                      bool present_where_named) {
  for (std::size_t i = 0; i < specs.size(); ++i)
    if ((specs[i].optional || !may_be_absent(specs[i])) &&
        arrays[i].has_value() != (contains(names, specs[i].name) == present_where_named))
      throw std::invalid_argument(fmt::format("field '{}': {} is {}, and '{}' in 'case' says the opposite", field,
                                              specs[i].name, arrays[i] ? "given" : "null", named));
}

void require_scalars(const Scalars& scalars, const Contract& contract) {
  for (const ScalarSpec& spec : contract.scalars) {
    const auto found = scalars.find(spec.name);
    if (found == scalars.end()) throw std::invalid_argument(fmt::format("field 'scalars': {} is missing", spec.name));
    if (!std::isfinite(found->second) || (spec.whole && found->second != std::floor(found->second)))
      throw std::invalid_argument(fmt::format("field 'scalars': wanted a {}number for {}, got {}",
                                              spec.whole ? "whole " : "", spec.name, found->second));
  }
}

void require_positive(const std::map<std::string, std::int64_t>& settings) {
  for (const auto& [parameter, value] : settings)
    if (value < 1)
      throw std::invalid_argument(fmt::format("field 'settings': wanted {} of 1 or more, got {}", parameter, value));
}

// What a case must be, whatever property it is of, to be run at all.
void require_sound(const Case& c, const Contract& contract) {
  if (c.dtype != DType::float32 && c.dtype != DType::float64)
    throw std::invalid_argument(fmt::format("field 'dtype': wanted float32 or float64, got {}", name(c.dtype)));
  for (const std::string& symbol : contract.dim_symbols)
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < 0)
      throw std::invalid_argument(fmt::format("field 'dims': wanted an extent of 0 or more for {}", symbol));
  for (const auto& [symbol, extent] : c.dims)
    if (!contains(contract.dim_symbols, symbol))
      throw std::invalid_argument(fmt::format("field 'dims': wanted extents of {}, got one of '{}'",
                                              fmt::join(contract.dim_symbols, ", "), symbol));
  for (const TensorSpec& spec : contract.inputs) {
    double elements = 1;  // as a double, since hostile extents overflow an integer
    for (const std::string& symbol : spec.dims) elements *= static_cast<double>(extent_of(symbol, c.dims));
    if (elements > most_elements)
      throw std::invalid_argument(fmt::format("field 'dims': {} would have {:.3g} elements; wanted at most {:.0g}",
                                              spec.name, elements, most_elements));
  }
  for (std::int64_t length : c.pieces)
    if (length < 0 || static_cast<double>(length) > most_elements)
      throw std::invalid_argument(fmt::format("field 'pieces': {} is no length of a piece", length));
  require_names(
      "absent", c.absent, contract.inputs, [](const TensorSpec& spec) { return spec.optional; }, "optional inputs");
  require_names(
      "frozen", c.frozen, contract.inputs, [](const TensorSpec& spec) { return spec.differentiable; },
      "differentiable inputs");
  require_names(
      "cotangents", c.cotangents, contract.outputs, [](const TensorSpec& spec) { return spec.differentiable; },
      "differentiable outputs");
  const std::vector<std::string>& fills = find_driver(contract.kernel)->fills;
  if (!contains(fills, c.fill))
    throw std::invalid_argument(
        fmt::format("field 'fill': wanted one of {}, got '{}'", fmt::join(fills, ", "), c.fill));
  require_positive(c.settings);
}

}  // namespace

std::optional<Finding> replayed(const Driver& driver, const Fixture& fixture, Attached& fresh) {
  const Property& property = *find_property(fixture.c.property);
  if (fixture.after_another) {
    Case other = fixture.c;
    ++other.seed;
    Expectation before(driver, other, 2);
    property.check(before, fresh.subject());
  }
  Expectation expectation(driver, fixture.c, fixture.problem ? *fixture.problem : problem_of(driver, fixture.c), 2);
  return property.check(expectation, fresh.subject()).finding;
}

std::filesystem::path write_fixture(const std::filesystem::path& folder, const Fixture& fixture) {
  json j{{"format", format_name},
         {"candidate", fixture.candidate},
         {"settings", fixture.settings},
         {"case", fixture.c},
         {"after_another_call", fixture.after_another},
         {"found", to_json(fixture.finding)}};
  if (!fixture.recomputes.empty()) j["recomputes"] = fixture.recomputes;
  if (fixture.problem &&
      value_count(fixture.problem->inputs) + value_count(fixture.problem->cotangents) <= most_values) {
    j["inputs"] = to_json(fixture.problem->inputs);
    if (!fixture.problem->scalars.empty()) j["scalars"] = fixture.problem->scalars;
    j["cotangents"] = to_json(fixture.problem->cotangents);
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot make the folder '{}': {}", folder.string(), error.message()));
  const std::string text = j.dump(1) + "\n";
  const auto file = folder / fmt::format("{}-{}-{}-{}.json", fixture.c.kernel, file_name(fixture.candidate),
                                         fixture.c.property, sha256(json(fixture.c).dump()).substr(0, 8));
  write_whole(file, text);
  return file;
}

Fixture read_fixture(const std::filesystem::path& file) {
  const std::string text = read_whole(file);
  try {
    json j;
    try {
      j = json::parse(text);
    } catch (const json::exception& error) {  // a number that no double holds is no parse error to the library
      throw std::invalid_argument(fmt::format("it is not JSON: {}", error.what()));
    }
    if (const auto format = field<std::string>(j, "format"); format != format_name)
      throw std::invalid_argument(fmt::format("field 'format': wanted '{}', got '{}'", format_name, format));
    Fixture fixture;
    fixture.candidate = field<std::string>(j, "candidate");
    fixture.settings = field<std::map<std::string, std::int64_t>>(j, "settings");
    require_positive(fixture.settings);
    fixture.after_another = field<bool>(j, "after_another_call");
    if (j.contains("recomputes")) fixture.recomputes = field<std::string>(j, "recomputes");
    const json described = field<json>(j, "case");
    try {
      fixture.c = case_from_json(described);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("in 'case': ") + error.what());
    }
    const Contract* contract = find_contract(fixture.c.kernel);
    if (contract == nullptr || find_driver(fixture.c.kernel) == nullptr)
      throw std::invalid_argument("in 'case': field 'kernel': '" + fixture.c.kernel +
                                  "' is not a kernel of this build");
    if (find_property(fixture.c.property) == nullptr)
      throw std::invalid_argument("in 'case': field 'property': '" + fixture.c.property +
                                  "' is not a property of this build");
    try {
      require_sound(fixture.c, *contract);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("in 'case': ") + error.what());
    }
    if (j.contains("inputs")) {
      Problem problem;
      problem.inputs = arrays_from(j, "inputs", contract->inputs, fixture.c);
      if (!contract->scalars.empty()) problem.scalars = field<Scalars>(j, "scalars");
      require_scalars(problem.scalars, *contract);
      problem.cotangents = arrays_from(j, "cotangents", contract->outputs, fixture.c);
      for (std::size_t i = 0; i < problem.inputs.size(); ++i)
        if (!contract->inputs[i].optional &&
            problem.inputs[i].has_value() != belongs(contract->inputs[i], fixture.c.dims))
          throw std::invalid_argument(fmt::format(
              "field 'inputs': {} is {}", contract->inputs[i].name,
              problem.inputs[i] ? "given, and these extents ask for none" : "null, and the contract needs it"));
      require_presence("inputs", problem.inputs, contract->inputs, "absent", fixture.c.absent, false);
      require_presence("cotangents", problem.cotangents, contract->outputs, "cotangents", fixture.c.cotangents, true);
      fixture.problem = std::move(problem);
    }
    return fixture;
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(fmt::format("'{}' is not a usable fixture: {}", file.string(), error.what()));
  }
}

}  // namespace fractus
