// Lattice: a number that knows whether every order of evaluation of it is exact.
//
// (v, m, grid): every intermediate result is a multiple of 2^grid and at most m in magnitude. If m <= 2^(p + grid), p the
// bits of the significand, each of them is representable, so no correct order rounds at all and bit equality may be
// demanded (METHODS.md, section 1). An input 0 counts as one unit: its partial products exist although the whole vanishes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/number.h"

namespace fractus::oracle {

struct Lattice {
  double v = 0;
  double m = 0;
  int grid = no_grid;  // of an exact zero: coarser than anything, so that a sum takes the other's

  static constexpr int no_grid = 1 << 20;

  Lattice() = default;
  explicit Lattice(int zero) : v(zero), m(zero) {}  // sums start from R(0); no other integer is used
  Lattice(double value, double most, int unit) : v(value), m(most), grid(unit) {}
  // A multiple of 2^unit.
  static Lattice input(double value, int unit) { return {value, std::max(std::fabs(value), std::ldexp(1.0, unit)), unit}; }
};

inline bool is_exact(const Lattice& x, int significand_bits) {
  return x.m == 0 || x.m <= std::ldexp(1.0, significand_bits + x.grid);
}

inline Lattice operator+(const Lattice& a, const Lattice& b) { return {a.v + b.v, a.m + b.m, std::min(a.grid, b.grid)}; }
inline Lattice operator-(const Lattice& a) { return {-a.v, a.m, a.grid}; }
inline Lattice operator-(const Lattice& a, const Lattice& b) { return a + (-b); }
inline Lattice operator*(const Lattice& a, const Lattice& b) {
  const bool zero = a.grid == Lattice::no_grid || b.grid == Lattice::no_grid;
  return zero ? Lattice() : Lattice(a.v * b.v, a.m * b.m, a.grid + b.grid);
}

// Exact for a power of two; by anything else the quotient rounds, and m says so.
inline Lattice operator/(const Lattice& a, const Lattice& b) {
  if (a.grid == Lattice::no_grid) return {};
  int exponent = 0;
  const bool power_of_two = std::fabs(std::frexp(b.v, &exponent)) == 0.5;
  --exponent;
  if (!power_of_two) return {0, std::numeric_limits<double>::infinity(), 0};
  return {a.v / b.v, std::ldexp(a.m, -exponent), a.grid - exponent};
}

// The contract's epsilons vanish against a denominator of at least 2^-12: 1e-20 is below half an ulp of it even in
// float64 (2^-12 * 2^-53 > 1e-20). A smaller denominator is treated as cut, and its draw is refused.
template <>
struct PowerOfTen<Lattice> {
  static Lattice of(int) { return {}; }
};
inline Branch branch(const Lattice& den, int) { return std::fabs(den.v) >= 0x1p-12 ? Branch::divide : Branch::cut; }

}  // namespace fractus::oracle
