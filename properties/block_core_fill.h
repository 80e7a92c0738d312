// The distributions that a block is tried on.
#pragma once

#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::block_core {

// The one that aims at the choices: wraps of the oscillators, and experts that tie.
inline constexpr const char* choice_fill_name = "near_ties";

std::vector<std::string> fill_names();         // ordinary ones first, that one last
std::vector<std::string> smooth_fill_names();  // all but that one

// All inputs but those absent, scalars, cotangents of out and lb, for the case: values representable in its dtype and
// inside the contract's domain. Throws std::invalid_argument for an unknown fill or extents that do not fit.
Problem fill(const Case& c);

}  // namespace fractus::block_core
