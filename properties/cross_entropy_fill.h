// The distributions that cross entropy is tried on.
#pragma once

#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::cross_entropy {

// Real-valued logits, ordinary first, then adversarial.
const std::vector<std::string>& smooth_fill_names();

// Two-level logits whose softmax is a power of two, with one tensor that fills the significand: "wide_W" and so on.
const std::vector<std::string>& wide_fill_names();

std::vector<std::string> fill_names();

// Inputs h, W, targets, the scalar ce_chunk and the cotangent of the loss for the case. Throws std::invalid_argument
// for an unknown fill or impossible extents.
Problem fill(const Case& c);

}  // namespace fractus::cross_entropy
