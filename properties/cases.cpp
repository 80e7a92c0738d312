#include "properties/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace fractus {
namespace {

std::vector<std::string> names_where(const std::vector<TensorSpec>& specs, bool (*keep)(const TensorSpec&)) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs)
    if (keep(spec)) names.push_back(spec.name);
  return names;
}

// A subset by the bits of `mask`.
std::vector<std::string> subset(const std::vector<std::string>& names, int mask) {
  std::vector<std::string> chosen;
  for (std::size_t i = 0; i < names.size(); ++i)
    if ((mask >> i) & 1) chosen.push_back(names[i]);
  return chosen;
}

}  // namespace

Case base_case(const Driver& driver, const std::string& property, DType dtype, const Dims& dims,
               const std::string& fill) {
  Case c;
  c.kernel = driver.contract->kernel;
  c.property = property;
  c.dtype = dtype;
  c.dims = dims;
  c.fill = fill;
  return c;
}

std::size_t position(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& s) { return s.name == name; });
  return static_cast<std::size_t>(found - specs.begin());
}

std::vector<std::string> output_names(const Driver& driver) {
  return names_where(driver.contract->outputs, [](const TensorSpec& spec) { return spec.differentiable; });
}

std::vector<std::string> optional_inputs(const Driver& driver) {
  return names_where(driver.contract->inputs, [](const TensorSpec& spec) { return spec.optional; });
}

std::vector<TensorSpec> differentiable_inputs(const Driver& driver) {
  std::vector<TensorSpec> inputs;
  for (const TensorSpec& spec : driver.contract->inputs)
    if (spec.differentiable) inputs.push_back(spec);
  return inputs;
}

bool turn_of(const Driver& driver, const PlanSettings& settings, DType dtype, std::size_t i) {
  constexpr std::size_t few = 12;  // so many that a case each in each dtype is little of a plan
  const std::vector<DType>& all = settings.dtypes;
  if (all.size() < 2 || differentiable_inputs(driver).size() <= few) return true;
  const auto at = static_cast<std::size_t>(std::find(all.begin(), all.end(), dtype) - all.begin());
  return (i + at) % all.size() == 0;
}

Dims shape_with(const TensorSpec& spec, const Dims& first, const std::vector<Dims>& shapes) {
  if (belongs(spec, first)) return first;
  const auto found = std::find_if(shapes.begin(), shapes.end(), [&](const Dims& dims) { return belongs(spec, dims); });
  return found == shapes.end() ? first : *found;
}

std::string size_class(const Driver& driver, const Case& c) {
  if (driver.size_symbol.empty()) return "";
  const auto length = static_cast<std::uint64_t>(c.dims.at(driver.size_symbol));
  const std::uint64_t low = std::bit_floor(length);
  return low <= 1 ? fmt::format("{} {}", driver.size_symbol, length)
                  : fmt::format("{} {}-{}", driver.size_symbol, low, 2 * low - 1);
}

rc::Gen<Case> random_case(const Driver& driver, const PlanSettings& settings, const std::string& property,
                          const std::vector<std::string>& fills, Backward backward) {
  const auto outputs = output_names(driver), optional = optional_inputs(driver);
  const auto inputs = names_where(driver.contract->inputs, [](const TensorSpec& spec) { return spec.differentiable; });
  const auto any_subset = [](const std::vector<std::string>& names, int smallest) {
    return rc::gen::inRange(smallest, 1 << names.size());
  };
  // Mostly everything present: a subset of two optional inputs is "both" three times out of five.
  const auto absent = rc::gen::weightedOneOf<int>({{2, rc::gen::just(0)}, {3, any_subset(optional, 0)}});
  const auto all_cotangents = rc::gen::just((1 << outputs.size()) - 1);
  const auto cotangents = outputs.size() < 2
                              ? all_cotangents
                              : rc::gen::weightedOneOf<int>({{1, all_cotangents}, {1, any_subset(outputs, 1)}});
  const auto frozen = rc::gen::weightedOneOf<int>({{4, rc::gen::just(0)}, {1, any_subset(inputs, 0)}});
  return rc::gen::map(rc::gen::tuple(rc::gen::elementOf(settings.dtypes), driver.random_shape(settings.block),
                                     rc::gen::elementOf(fills), absent, cotangents, frozen,
                                     rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 53)),
                      [&driver, property, backward, outputs, optional, inputs](const auto& draw) {
                        const auto& [dtype, dims, fill, absent_mask, cotangent_mask, frozen_mask, seed] = draw;
                        Case c = base_case(driver, property, dtype, dims, fill);
                        c.absent = subset(optional, absent_mask);
                        c.seed = seed;
                        if (backward == Backward::always) {
                          c.cotangents = subset(outputs, cotangent_mask);
                          const auto candidates = subset(inputs, frozen_mask);
                          if (candidates.size() < inputs.size()) c.frozen = candidates;
                        }
                        return c;
                      });
}

rc::Gen<Case> with_variant(const rc::Gen<Case>& cases, const std::vector<std::string>& variants) {
  return rc::gen::map(rc::gen::pair(cases, rc::gen::elementOf(variants)), [](auto draw) {
    draw.first.variant = draw.second;
    return draw.first;
  });
}

}  // namespace fractus
