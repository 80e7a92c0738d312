#include "harness/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "harness/attached.h"
#include "properties/compare.h"
#include "properties/fields.h"
#include "reports/files.h"

namespace fractus {
namespace {

using nlohmann::json;

// One file's tensors under the names of the contract: inputs as they are, cotangents g*, gradients d*, *_f64 in double.
class Recorded {
 public:
  Recorded(const Workshop& workshop, const std::filesystem::path& file)
      : file_(file), arrays_(workshop.read_archive(file)) {}

  Array get(const std::string& name, const std::string& as, const Shape* shape) const {
    const auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.name == name; });
    if (found == arrays_.end())
      throw std::runtime_error(fmt::format("'{}': tensor '{}' is missing", file_.string(), name));
    if (shape != nullptr && found->shape != *shape)
      throw std::runtime_error(fmt::format("'{}': tensor '{}': wanted shape {}, got {}", file_.string(), name,
                                           to_string(*shape), to_string(found->shape)));
    Array array = *found;
    array.name = as;
    return array;
  }
  Array as(const std::string& name, const std::string& as, DType dtype, const Shape* shape = nullptr) const {
    Array array = get(name, as, shape);
    array.dtype = dtype;
    return array;
  }
  std::string file() const { return file_.string(); }
  bool has(const std::string& name) const {
    return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& a) { return a.name == name; });
  }

 private:
  std::filesystem::path file_;
  std::vector<Array> arrays_;
};

// The extents, read off the recorded inputs; `open` are the scalars that the record says nothing of.
Dims dims_of(const Contract& contract, const Recorded& recorded, const Dims& open) {
  Dims dims = open;
  for (const TensorSpec& spec : contract.inputs) {
    if (!recorded.has(spec.name)) continue;
    const Shape shape = recorded.get(spec.name, spec.name, nullptr).shape;
    for (std::size_t d = 0; d < spec.dims.size() && d < shape.size(); ++d) dims.emplace(spec.dims[d], shape[d]);
  }
  for (const TensorSpec& spec : contract.inputs)
    for (const std::string& symbol : spec.dims)
      if (!dims.contains(symbol))
        throw std::runtime_error(
            fmt::format("'{}': nothing tells the extent {}: tensor '{}' is missing or has too few "
                        "dimensions",
                        recorded.file(), symbol, spec.name));
  return dims;
}

Case case_of(const Driver& driver, const Recorded& recorded, DType dtype, const Dims& open) {
  Case c;
  c.kernel = driver.contract->kernel;
  c.property = "golden";
  c.dtype = dtype;
  c.dims = dims_of(*driver.contract, recorded, open);
  c.fill = "recorded";
  for (const TensorSpec& output : driver.contract->outputs) c.cotangents.push_back(output.name);
  return c;
}

Problem problem_of(const Driver& driver, const Recorded& recorded, const Case& c) {
  Problem problem;
  for (const TensorSpec& spec : driver.contract->inputs) {
    const Shape shape = shape_of(spec, c.dims);
    problem.inputs.push_back(recorded.as(spec.name, spec.name, spec.dtype.value_or(c.dtype), &shape));
  }
  for (const ScalarSpec& spec : driver.contract->scalars)
    problem.scalars[spec.name] = static_cast<double>(c.dims.at(spec.name));
  for (const TensorSpec& spec : driver.contract->outputs) {
    const Shape shape = shape_of(spec, c.dims);
    if (shape.empty() && !recorded.has("g" + spec.name))  // a loss starts the backward by itself
      problem.cotangents.emplace_back(Array{spec.name, c.dtype, {}, {1.0}});
    else
      problem.cotangents.push_back(recorded.as("g" + spec.name, spec.name, c.dtype, &shape));
  }
  return problem;
}

Answer recorded_answer(const Driver& driver, const Recorded& recorded, const Case& c) {
  const std::string suffix = c.dtype == DType::float64 ? "_f64" : "";
  Answer answer;
  for (const TensorSpec& spec : driver.contract->outputs) {
    const Shape shape = shape_of(spec, c.dims);
    answer.outputs.push_back(recorded.as(spec.name + suffix, spec.name, c.dtype, &shape));
  }
  for (const TensorSpec& spec : driver.contract->inputs) {
    const Shape shape = shape_of(spec, c.dims);
    if (!spec.differentiable) {
      answer.gradients.emplace_back();
      continue;
    }
    answer.gradients.emplace_back(recorded.as("d" + spec.name + suffix, "d" + spec.name, c.dtype, &shape));
  }
  return answer;
}

GoldenLine line_of(const std::string& file, const std::string& what, const Outcome& outcome) {
  GoldenLine line{.file = file, .what = what, .passed = !outcome.finding};
  for (const auto& [tensor, ratio] : outcome.worst_ratio) line.worst_ratio = std::max(line.worst_ratio, ratio);
  if (outcome.finding) line.text = outcome.finding->text;
  return line;
}

// Every form on the recorded problem. Form and record each lie within the tolerance of the truth, so they agree within
// twice that.
void check_forms(const Workshop& workshop, Expectation& expectation, const Dims& open, const std::string& file,
                 GoldenResult& result) {
  for (const FormInfo& form : workshop.forms()) {
    if (form.kernel != expectation.of().kernel || form.role == "wrong") continue;
    Attached attached(workshop, form, {});
    const Subject subject = attached.subject();
    std::string what = fmt::format("{} {}", form.name, name(expectation.of().dtype));
    if (!open.empty()) what += " " + text_of(open);
    result.lines.push_back(line_of(file, what, call_and_compare(expectation, subject, call_of(expectation, subject))));
  }
}

void check_file(const Workshop& workshop, const Driver& driver, const std::filesystem::path& folder,
                const std::string& file, GoldenResult& result) {
  const Recorded recorded(workshop, folder / file);
  for (DType dtype : {DType::float32, DType::float64}) {
    const auto expectation_with = [&](const Dims& open) {
      const Case c = case_of(driver, recorded, dtype, open);
      return std::make_unique<Expectation>(driver, c, problem_of(driver, recorded, c), 2);
    };
    // The definition does not know the scalars that are left open, so any of them will do for the record itself.
    const auto definition = expectation_with(driver.recorded_with.front());
    result.lines.push_back(line_of(file, fmt::format("recorded {}", name(dtype)),
                                   compare(*definition, recorded_answer(driver, recorded, definition->of()))));
    for (const Dims& open : driver.recorded_with) check_forms(workshop, *expectation_with(open), open, file, result);
  }
}

}  // namespace

bool GoldenResult::passed() const {
  return std::all_of(lines.begin(), lines.end(), [](const GoldenLine& line) { return line.passed; });
}

GoldenResult golden(const Workshop& workshop, const std::filesystem::path& folder) {
  const std::filesystem::path index_file = folder / "index.json";
  GoldenResult result;
  json cases;
  try {
    cases = field<json>(json::parse(read_whole(index_file)), "cases");
    if (!cases.is_array())
      throw std::invalid_argument(std::string("field 'cases': wanted a list, got ") + cases.type_name());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      try {
        field<std::string>(cases[i], "file");
        field<std::string>(cases[i], "kernel");
      } catch (const std::invalid_argument& e) {
        throw std::invalid_argument(fmt::format("case {}: {}", i, e.what()));
      }
    }
  } catch (const json::exception& e) {
    throw std::runtime_error(fmt::format("'{}' is not JSON: {}", index_file.string(), e.what()));
  } catch (const std::invalid_argument& e) {
    throw std::runtime_error(fmt::format("'{}': {}", index_file.string(), e.what()));
  }
  for (const json& entry : cases) {
    const auto file = field<std::string>(entry, "file");
    const auto kernel = field<std::string>(entry, "kernel");
    if (const Driver* driver = find_driver(kernel))
      check_file(workshop, *driver, folder, file, result);
    else
      result.skipped.push_back(fmt::format("{} ({})", file, kernel));
  }
  return result;
}

}  // namespace fractus
