// The element types that a contract may name, and what rounding in each of them means.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fractus {

enum class DType { float32, float64, int64 };

inline std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float64: return "float64";
    case DType::int64: return "int64";
  }
  return "?";
}

// Throws std::invalid_argument for a name that is none of the three.
inline DType dtype_from(std::string_view text) {
  for (DType dtype : {DType::float32, DType::float64, DType::int64})
    if (text == name(dtype)) return dtype;
  throw std::invalid_argument("unknown dtype '" + std::string(text) + "': wanted float32, float64 or int64");
}

inline std::size_t item_size(DType dtype) { return dtype == DType::float32 ? 4 : 8; }

// Unit roundoff of round-to-nearest: half the distance from 1 to the next number (Higham, Accuracy and Stability, 2.1).
inline constexpr double unit_roundoff(DType dtype) { return dtype == DType::float32 ? 0x1p-24 : 0x1p-53; }

// Bits of the significand, the hidden one included: every integer up to 2^significand_bits is representable.
inline constexpr int significand_bits(DType dtype) { return dtype == DType::float32 ? 24 : 53; }

// The spacing of the numbers below the normal range: no rounding there is off by more than this.
inline constexpr double smallest_subnormal(DType dtype) { return dtype == DType::float32 ? 0x1p-149 : 0x1p-1074; }

}  // namespace fractus
