// What the kernels with a gate share: how top_k lies to the number of experts, and what leaves the gate's domain.
#pragma once

#include <string>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::gating {

// "top_k = E", "top_k = 1" or "1 < top_k < E"; empty where there is one expert.
std::string class_of_top_k(const Case& c);

Violation too_steep();  // a kappa / temperature beyond the most: computed with, or refused
Violation temperature_0();

}  // namespace fractus::gating
