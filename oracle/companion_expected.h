// Companions as elements of an expected tensor.
#pragma once

#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "oracle/companion.h"
#include "oracle/expected.h"

namespace fractus::oracle {

// Zeros with a tolerance of 0, to be filled.
template <DType judged>
ExpectedTensor blank(std::string name, Shape shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  const bool wide = !std::is_same_v<Base<judged>, double>;
  return {std::move(name), std::move(shape), std::vector<double>(count), std::vector<double>(wide ? count : 0),
          std::vector<double>(count)};
}

template <DType judged>
void put(const Companion<judged>& number, ExpectedTensor& tensor, std::size_t i) {
  const double value = static_cast<double>(number.v);
  tensor.value[i] = value;
  if (!tensor.remainder.empty()) tensor.remainder[i] = static_cast<double>(number.v - static_cast<Base<judged>>(value));
  // m and e were themselves summed in double; a relative 2^-30 is far more than those roundings.
  const double tolerance = error(number) * (1 + 0x1p-30);
  tensor.tolerance[i] = tolerance < 1e100 ? tolerance : std::numeric_limits<double>::infinity();
}

// No bound, whatever the value.
inline void put_undecidable(ExpectedTensor& tensor, std::size_t i) {
  tensor.tolerance[i] = std::numeric_limits<double>::infinity();
}

// error(x) is a sum of products of terms that grow at least linearly in u, so what the base's own roundings did to v is
// at most the same expression times u_base / u; doubled, for what that leaves out of second order.
template <DType judged>
inline constexpr double base_radius = 2 * BaseOf<judged>::unit_roundoff / unit_roundoff(judged);

}  // namespace fractus::oracle
