// The distributions that the gate is tried on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::moe_gate {

// Ordinary first, then those that aim: at the cut of the sum, at steep exponents, at resultants that may be 0.
const std::vector<std::string>& smooth_fill_names();
std::vector<std::string> fill_names();

// mu_i = 2 pi F[floor(i n / E)], F the n fractions of the Farey sequence of order 2 E (KERNELS.md).
std::vector<double> farey_phases(std::int64_t experts);

// Inputs phases and expert_phases, the scalars, which the fill draws, and the cotangents that the case asks for. Throws
// std::invalid_argument for an unknown fill or impossible extents. Fewer experts than top_k, which only a case that is
// being shrunk has, are all chosen.
Problem fill(const Case& c);

}  // namespace fractus::moe_gate
