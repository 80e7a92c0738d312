// The distributions that the mixture of experts is tried on: moe_gate's of the phases, and the experts' own.
#pragma once

#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::moe {

// Ordinary first, then those that aim: at the activation's middle and tails, at uneven routes, at scales and biases.
const std::vector<std::string>& smooth_fill_names();
std::vector<std::string> fill_names();

// Inputs by the contract, dense where r is 0; the scalars, which the fill draws; the cotangents that the case asks for.
// Throws std::invalid_argument for an unknown fill or impossible extents. Fewer experts than top_k, which only a case
// that is being shrunk has, are all chosen.
Problem fill(const Case& c);

}  // namespace fractus::moe
