// Making cases: the ingredients that the properties' plans share.
#pragma once

#include <string>
#include <vector>

#include "properties/property.h"

namespace fractus {

// A forward case of the property with every input present.
Case base_case(const Driver& driver, const std::string& property, DType dtype, const Dims& dims,
               const std::string& fill);

// A few groups and steps of the training run's shape: its widths, for which a form may have a path of its own, at the
// price of a small case.
Dims live_slice(const Driver& driver);

// The training run's length and widths, where a kernel takes the path that it was written for, with few groups.
Dims live_groups(const Driver& driver, std::int64_t groups);

std::vector<std::string> output_names(const Driver& driver);
std::vector<std::string> optional_inputs(const Driver& driver);

// "T 64-127": cases whose sequences are within a factor of two, and whose bounds are therefore comparably tight. Empty
// for a kernel without a sequence.
std::string size_class(const Driver& driver, const Case& c);

enum class Backward { never, always };

// A random case: a shape around the block's borders, one of the fills, any subset of the optional inputs; with
// Backward::always any non-empty subset of the cotangents and now and then a frozen input.
rc::Gen<Case> random_case(const Driver& driver, const PlanSettings& settings, const std::string& property,
                          const std::vector<std::string>& fills, Backward backward);

// The same with any of the variants.
rc::Gen<Case> with_variant(const rc::Gen<Case>& cases, const std::vector<std::string>& variants);

}  // namespace fractus
