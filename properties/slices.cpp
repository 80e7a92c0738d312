#include "properties/slices.h"

#include <algorithm>

namespace fractus {
namespace {

// A tensor is `outer` blocks of shape[dim] rows of `inner` values.
struct Strides {
  std::size_t outer = 1, inner = 1;
  Strides(const Shape& shape, std::size_t dim) {
    for (std::size_t d = 0; d < shape.size(); ++d)
      (d < dim ? outer : d > dim ? inner : unused) *= static_cast<std::size_t>(shape[d]);
  }

 private:
  std::size_t unused = 1;
};

}  // namespace

Array slice(const Array& array, std::size_t dim, std::int64_t start, std::int64_t length) {
  const Strides strides(array.shape, dim);
  const auto extent = static_cast<std::size_t>(array.shape[dim]);
  Array part{array.name, array.dtype, array.shape, {}};
  part.shape[dim] = length;
  for (std::size_t o = 0; o < strides.outer; ++o) {
    const auto first = array.values.begin() +
                       static_cast<std::ptrdiff_t>((o * extent + static_cast<std::size_t>(start)) * strides.inner);
    part.values.insert(part.values.end(), first,
                       first + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(length) * strides.inner));
  }
  return part;
}

Array joined(const std::vector<Array>& parts, std::size_t dim) {
  Array whole{parts.front().name, parts.front().dtype, parts.front().shape, {}};
  whole.shape[dim] = 0;
  for (const Array& part : parts) whole.shape[dim] += part.shape[dim];
  const std::size_t outer = Strides(whole.shape, dim).outer;
  for (std::size_t o = 0; o < outer; ++o)
    for (const Array& part : parts) {
      const std::size_t rows = part.values.size() / outer;
      const auto first = part.values.begin() + static_cast<std::ptrdiff_t>(o * rows);
      whole.values.insert(whole.values.end(), first, first + static_cast<std::ptrdiff_t>(rows));
    }
  return whole;
}

void repeat_first(Array& array, std::size_t dim) {
  if (array.values.empty()) return;
  const std::vector<Array> copies(static_cast<std::size_t>(array.shape[dim]), slice(array, dim, 0, 1));
  array.values = joined(copies, dim).values;
}

}  // namespace fractus
