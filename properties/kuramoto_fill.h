// The distributions that the oscillators are tried on.
#pragma once

#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::kuramoto {

// The one that puts angles at a wrap.
inline constexpr const char* near_wrap_fill = "near_wrap";

// All of them, ordinary first; and those without near_wrap.
std::vector<std::string> fill_names();
std::vector<std::string> smooth_fill_names();

// Inputs hidden, omega, coupling_u, coupling_lambda, the scalars and a cotangent of theta, representable in the case's
// dtype. Throws std::invalid_argument for an unknown fill or impossible extents.
Problem fill(const Case& c);

}  // namespace fractus::kuramoto
