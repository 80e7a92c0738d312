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

// The same tensor without its values.
Array blank(const Array& array) { return {array.name, array.dtype, array.shape, {}}; }
Residues blank(const Residues& residues) { return {residues.name, residues.shape, {}}; }

template <class A>
A slice_of(const A& array, std::size_t dim, std::int64_t start, std::int64_t length) {
  const Strides strides(array.shape, dim);
  const auto extent = static_cast<std::size_t>(array.shape[dim]);
  A part = blank(array);
  part.shape[dim] = length;
  for (std::size_t o = 0; o < strides.outer; ++o) {
    const auto first = array.values.begin() +
                       static_cast<std::ptrdiff_t>((o * extent + static_cast<std::size_t>(start)) * strides.inner);
    part.values.insert(part.values.end(), first,
                       first + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(length) * strides.inner));
  }
  return part;
}

template <class A>
A joined_of(const std::vector<A>& parts, std::size_t dim) {
  A whole = blank(parts.front());
  whole.shape[dim] = 0;
  for (const A& part : parts) whole.shape[dim] += part.shape[dim];
  const std::size_t outer = Strides(whole.shape, dim).outer;
  for (std::size_t o = 0; o < outer; ++o)
    for (const A& part : parts) {
      const std::size_t rows = part.values.size() / outer;
      const auto first = part.values.begin() + static_cast<std::ptrdiff_t>(o * rows);
      whole.values.insert(whole.values.end(), first, first + static_cast<std::ptrdiff_t>(rows));
    }
  return whole;
}

}  // namespace

Array slice(const Array& array, std::size_t dim, std::int64_t start, std::int64_t length) {
  return slice_of(array, dim, start, length);
}
Residues slice(const Residues& residues, std::size_t dim, std::int64_t start, std::int64_t length) {
  return slice_of(residues, dim, start, length);
}
Array joined(const std::vector<Array>& parts, std::size_t dim) { return joined_of(parts, dim); }
Residues joined(const std::vector<Residues>& parts, std::size_t dim) { return joined_of(parts, dim); }

void repeat_first(Array& array, std::size_t dim) {
  if (array.values.empty()) return;
  const std::vector<Array> copies(static_cast<std::size_t>(array.shape[dim]), slice(array, dim, 0, 1));
  array.values = joined(copies, dim).values;
}

}  // namespace fractus
