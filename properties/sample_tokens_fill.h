// The distributions that the sampler is tried on.
#pragma once

#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::sample_tokens {

std::vector<std::string> fill_names();

// Inputs h and W, the scalars ce_chunk, temperature and seed. Throws std::invalid_argument for an unknown fill or
// impossible extents.
Problem fill(const Case& c);

}  // namespace fractus::sample_tokens
