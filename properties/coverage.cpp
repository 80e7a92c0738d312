#include "properties/coverage.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "properties/cases.h"

namespace fractus {
namespace {

std::vector<std::string> classes_of(const Driver& driver, const PlanSettings& settings, const Case& c,
                                    const Outcome& outcome) {
  std::vector<std::string> classes{fmt::format("dtype {}", name(c.dtype)), "fill " + c.fill};
  if (c.layouts.empty()) classes.push_back(fmt::format("layout {}", name(Layout::contiguous)));
  std::set<Layout> of_inputs, of_cotangents;
  for (const TensorSpec& spec : driver.contract->inputs)
    if (!contains(c.absent, spec.name)) of_inputs.insert(layout_of(c.layouts, spec.name));
  for (const std::string& output : c.cotangents) of_cotangents.insert(layout_of(c.layouts, "d" + output));
  for (Layout layout : of_inputs)
    if (layout != Layout::contiguous) classes.push_back(fmt::format("layout {}", name(layout)));
  for (Layout layout : of_cotangents)
    if (layout != Layout::contiguous) classes.push_back(fmt::format("cotangent layout {}", name(layout)));
  if (of_inputs.size() > 1) classes.emplace_back("a layout for each tensor");
  if (c.cotangents.empty()) classes.emplace_back("forward only");
  if (c.cotangents.size() == 1) classes.push_back("cotangent of " + c.cotangents.front() + " alone");
  if (!c.cotangents.empty() && c.cotangents.size() == output_names(driver).size())
    classes.emplace_back("all cotangents");
  for (const std::string& input : c.absent) classes.push_back("without " + input);
  if (c.pieces.size() > 1) classes.emplace_back("split sequence");
  if (outcome.choices_in_doubt > 0) classes.emplace_back("choice in doubt");
  if (c.dims == driver.live) classes.emplace_back("the training run's shape");
  if (!driver.sequence_symbol.empty()) {
    const std::string& symbol = driver.sequence_symbol;
    const std::int64_t T = c.dims.at(symbol), block = settings.block;
    const std::string length = T == 0           ? "= 0"
                               : T == 1         ? "= 1"
                               : T < block      ? "short of a block"
                               : T % block == 0 ? "whole blocks"
                                                : "ragged tail";
    classes.push_back(symbol + " " + length);
  }
  if (const std::string& groups = driver.batch_symbol; !groups.empty())
    classes.push_back(fmt::format("{} {}", groups,
                                  c.dims.at(groups) == 0   ? "= 0"
                                  : c.dims.at(groups) == 1 ? "= 1"
                                                           : "> 1"));
  if (c.property == "domain") classes.push_back("refusal of " + c.variant);
  if (c.property == "law") classes.push_back("law of draws, " + c.variant);
  if (driver.classes)
    for (std::string& name : driver.classes(c, settings.block)) classes.push_back(std::move(name));
  return classes;
}

}  // namespace

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> names;
  for (const auto& [name, count] : cases)
    if (count == 0) names.push_back(name);
  return names;
}

Coverage blank_coverage(const Driver& driver, const PlanSettings& settings) {
  Coverage coverage;
  const auto require = [&](const std::string& name) { coverage.cases[name] = 0; };
  const bool backward = !settings.forward_only && !output_names(driver).empty();
  for (DType dtype : settings.dtypes) require(fmt::format("dtype {}", name(dtype)));
  for (Layout layout : all_layouts) {
    require(fmt::format("layout {}", name(layout)));
    if (layout != Layout::contiguous && backward) require(fmt::format("cotangent layout {}", name(layout)));
  }
  require("a layout for each tensor");
  for (const std::string& fill : driver.fills) require("fill " + fill);
  if (backward)
    for (const std::string& output : output_names(driver)) require("cotangent of " + output + " alone");
  for (const std::string& input : optional_inputs(driver)) require("without " + input);
  require("forward only");
  if (backward) require("all cotangents");
  if (!driver.carry.empty()) require("split sequence");
  if (!driver.choice_fill.empty()) require("choice in doubt");
  const bool live = settings.live && settings.dtypes.front() == DType::float32;  // float64 runs a part of its groups
  if (live) require("the training run's shape");
  if (!driver.sequence_symbol.empty()) {
    for (const char* length : {"= 0", "= 1", "whole blocks"}) require(driver.sequence_symbol + " " + length);
    if (settings.block > 1) require(driver.sequence_symbol + " ragged tail");
    if (settings.block > 2) require(driver.sequence_symbol + " short of a block");
  }
  if (!driver.batch_symbol.empty())
    for (const char* groups : {"= 0", "= 1", "> 1"})
      if (groups != std::string_view("= 0") || contains(driver.may_be_empty, driver.batch_symbol))
        require(driver.batch_symbol + " " + groups);
  for (const Violation& violation : driver.violations) require("refusal of " + violation.name);
  if (driver.law)
    for (const char* variant : {"small", "large", "pairs", "seeds"}) require(std::string("law of draws, ") + variant);
  if (driver.required_classes)
    for (const std::string& name : driver.required_classes(settings.block)) require(name);
  return coverage;
}

void count(Coverage& coverage, const Driver& driver, const PlanSettings& settings, const Case& c,
           const Outcome& outcome) {
  if (c.property == "identity") {  // no number of any fill is compared
    ++coverage.cases[fmt::format("algebra of {}", name(c.dtype))];
    return;
  }
  for (const std::string& name : classes_of(driver, settings, c, outcome)) ++coverage.cases[name];
  if (outcome.elements == 0) return;  // no number was compared
  for (const auto& [symbol, extent] : c.dims) {
    std::int64_t& largest = coverage.largest[c.dtype][symbol];
    largest = std::max(largest, extent);
  }
}

}  // namespace fractus
