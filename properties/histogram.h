// How many elements had which part of their bound as error.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace fractus {

// Octaves of error over bound: exactly 0; up to 2^-10; (2^-10, 2^-9] ... (1/2, 1]; over 1. Few and fixed, so that the
// histograms of two runs add up bin by bin, and an element costs an exponent.
struct Histogram {
  static constexpr int smallest = -10;  // exponent of the least edge
  static constexpr std::size_t bins = 3 - smallest;
  std::array<std::int64_t, bins> count{};

  // NaN, which no element with a bound has, counts as over 1.
  void add(double ratio) { ++count[bin_of(ratio)]; }
  void add(const Histogram& other) {
    for (std::size_t i = 0; i < bins; ++i) count[i] += other.count[i];
  }

  static std::size_t bin_of(double ratio) {
    if (ratio <= 0) return 0;
    if (!(ratio <= 1)) return bins - 1;
    int exponent = 0;  // ratio = m 2^exponent with m in [1/2, 1), so an edge itself has m = 1/2 and belongs below
    if (std::frexp(ratio, &exponent) == 0.5) --exponent;
    return exponent <= smallest ? 1 : static_cast<std::size_t>(exponent - smallest + 1);
  }

  bool operator==(const Histogram&) const = default;
};

}  // namespace fractus
