#include "contracts/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fractus {

std::string to_string(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

std::size_t value_count(const std::vector<std::optional<Array>>& arrays) {
  std::size_t count = 0;
  for (const auto& array : arrays)
    if (array) count += array->values.size();
  return count;
}

Array zeros(std::string name, DType dtype, Shape shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {std::move(name), dtype, std::move(shape), std::vector<double>(count, 0.0)};
}

double rounded(double x, DType dtype) {
  return dtype == DType::float32 ? static_cast<double>(static_cast<float>(x)) : x;
}

}  // namespace fractus
