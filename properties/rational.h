// What the drivers of rational kernels share that `identity` alone judges: ordinary values for the witness over floats.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "oracle/rational_expected.h"
#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::rational {

// signed: standard normal. positive: their magnitudes. magnitudes: powers of two from 2^-12 to 2^12 times them.
const std::vector<std::string>& fill_names();

// The value of a tensor of whole numbers; a contract may have one.
using Whole = std::function<std::vector<double>(const Shape&, std::uint64_t seed)>;

// Throws std::invalid_argument for an unknown fill or an extent below 1.
Problem fill(const Contract& contract, const Case& c, const Whole& whole = {});

oracle::FloatCall float_call(const Contract& contract, const Problem& problem, DType dtype);

}  // namespace fractus::rational
