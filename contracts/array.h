// A tensor's name, type, shape and values, without a library: what all rooms that do not see torch pass to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contracts/dtype.h"

namespace fractus {

using Shape = std::vector<std::int64_t>;

inline std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape);  // "(80, 128, 64)"

// Values lie row by row, widened to double. That loses nothing: every float32 and float64 is a double, bit for bit,
// and the contracts' integers (tokens, expert numbers) stay below 2^53.
struct Array {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<double> values;

  bool operator==(const Array&) const = default;
};

// Values of all that are present.
std::size_t value_count(const std::vector<std::optional<Array>>& arrays);

Array zeros(std::string name, DType dtype, Shape shape);

// Nearest value of the dtype to x: what a kernel would receive had x been stored in it.
double rounded(double x, DType dtype);

}  // namespace fractus
