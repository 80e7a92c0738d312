// The distributions that linear attention is tried on.
#pragma once

#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::linear_attention {

// Ordinary first, then adversarial, then the lattices and the one that aims at the cut.
const std::vector<std::string>& fill_names();

// Lattices in which one tensor fills the significand: "wide_S0" and so on.
const std::vector<std::string>& wide_fill_names();

// Inputs q, k, v, S0, z0 and cotangents of y, S, z for the case: absent ones left out, values representable in its
// dtype and inside the contract's domain. Throws std::invalid_argument for an unknown fill or impossible extents.
Problem fill(const Case& c);

}  // namespace fractus::linear_attention
