#include "harness/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "attest/files.h"
#include "harness/attached.h"
#include "harness/recorded.h"
#include "properties/compare.h"
#include "properties/fields.h"

namespace fractus {
namespace {

using nlohmann::json;

GoldenLine line_of(const std::string& file, const std::string& what, const Outcome& outcome) {
  GoldenLine line{.file = file, .what = what, .passed = !outcome.finding};
  for (const auto& [tensor, ratio] : outcome.worst_ratio) line.worst_ratio = std::max(line.worst_ratio, ratio);
  if (outcome.finding) line.text = outcome.finding->text;
  return line;
}

// Every form on the recorded problem. Form and record each lie within the tolerance of the truth, so they agree within
// twice that.
void check_forms(const Workshop& workshop, Expectation& expectation, const Dims& open, const std::string& file,
                 const std::string& which, GoldenResult& result) {
  for (const FormInfo& form : workshop.forms()) {
    if (form.kernel != expectation.of().kernel || form.role == "wrong") continue;
    Attached attached(workshop, form, {});
    const Subject subject = attached.subject();
    std::string what = fmt::format("{}{} {}", which, form.name, name(expectation.of().dtype));
    if (!open.empty()) what += " " + text_of(open);
    result.lines.push_back(line_of(file, what, call_and_compare(expectation, subject, call_of(expectation, subject))));
  }
}

void check_file(const Workshop& workshop, const Driver& driver, const std::filesystem::path& folder,
                const std::string& file, const json& entry, GoldenResult& result) {
  const std::vector<Recorded> calls = recorded_calls(folder / file, workshop.read_archive(folder / file), entry);
  for (std::size_t k = 0; k < calls.size(); ++k)
    for (DType dtype : {DType::float32, DType::float64}) {
      const Recorded& recorded = calls[k];
      const std::string which = calls.size() > 1 ? fmt::format("chunk{} ", k) : std::string();
      const auto expectation_with = [&](const Dims& open) {
        const Case c = recorded.case_of(driver, dtype, open);
        return std::make_unique<Expectation>(driver, c, recorded.problem_of(driver, c), 2);
      };
      // The definition does not know the scalars that are left open, so any of them will do for the record itself.
      const auto definition = expectation_with(driver.recorded_with.front());
      result.lines.push_back(line_of(file, fmt::format("{}recorded {}", which, name(dtype)),
                                     compare(*definition, recorded.answer_of(driver, definition->of()))));
      for (const Dims& open : driver.recorded_with)
        check_forms(workshop, *expectation_with(open), open, file, which, result);
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
      check_file(workshop, *driver, folder, file, entry, result);
    else
      result.skipped.push_back(fmt::format("{} ({})", file, kernel));
  }
  return result;
}

}  // namespace fractus
