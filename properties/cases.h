// Making cases: the ingredients that the properties' plans share.
#pragma once

#include <string>
#include <vector>

#include "properties/property.h"

namespace fractus {

// A forward case of the property with every input present.
Case base_case(const Driver& driver, const std::string& property, DType dtype, const Dims& dims,
               const std::string& fill);

// Where the tensor of that name stands in the list; its end where it does not.
std::size_t position(const std::vector<TensorSpec>& specs, const std::string& name);

// Those that a cotangent may flow into.
std::vector<std::string> output_names(const Driver& driver);
std::vector<std::string> optional_inputs(const Driver& driver);
std::vector<TensorSpec> differentiable_inputs(const Driver& driver);

// Whether this dtype's part of the plan has the case of the i-th differentiable input: one for each of them in each
// dtype would be most of the plan where a kernel has many, so there the dtypes take turns.
bool turn_of(const Driver& driver, const PlanSettings& settings, DType dtype, std::size_t i);

// `first`, or one of the shapes where the tensor has no part in that; freezing it there would be no case of it.
Dims shape_with(const TensorSpec& spec, const Dims& first, const std::vector<Dims>& shapes);

// "T 64-127": cases within a factor of two of each other in the extent that the bounds grow with, and whose bounds are
// therefore comparably tight. Empty for a kernel that has none.
std::string size_class(const Driver& driver, const Case& c);

enum class Backward { never, always };

// A random case: a shape around the block's borders, one of the fills, any subset of the optional inputs; with
// Backward::always any non-empty subset of the cotangents and now and then a frozen input.
rc::Gen<Case> random_case(const Driver& driver, const PlanSettings& settings, const std::string& property,
                          const std::vector<std::string>& fills, Backward backward);

// The same with any of the variants.
rc::Gen<Case> with_variant(const rc::Gen<Case>& cases, const std::vector<std::string>& variants);

}  // namespace fractus
