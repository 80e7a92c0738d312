// Lattice: a number that knows whether every order of evaluation of it is
// exact.
//
// (v, m, grid): every intermediate result is a multiple of 2^grid and at most m
// in magnitude. If m <= 2^(p + grid), p the bits of the significand, each of
// them is representable, so no correct order rounds at all and bit equality may
// be demanded (METHODS.md, section 1). An input 0 adds nothing to m: whatever
// multiplies it may round, and the product is 0 all the same; a partial result
// that also meets a factor other than 0 is certified there, where it counts.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "oracle/number.h"

namespace fractus::oracle {

template <int significand_bits>
struct Lattice {
  double v = 0;
  double m = 0;
  int grid = no_grid;  // of an exact zero: coarser than anything, so that a sum
                       // takes the other's

  static constexpr int no_grid = 1 << 20;

  Lattice() = default;
  explicit Lattice(int integer) { *this = input(integer); }
  Lattice(double value, double most, int unit) : v(value), m(most), grid(unit) {}
  // The grid of an input is its own last bit.
  static Lattice input(double value) {
    if (value == 0) return {};
    int exponent = 0;
    const auto significand = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
    return {value, std::fabs(value), exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(significand))};
  }
};

template <int bits>
bool is_exact(const Lattice<bits>& x) {
  return x.m == 0 || x.m <= std::ldexp(1.0, bits + x.grid);
}

template <int bits>
Lattice<bits> operator+(const Lattice<bits>& a, const Lattice<bits>& b) {
  return {a.v + b.v, a.m + b.m, std::min(a.grid, b.grid)};
}
template <int bits>
Lattice<bits> operator-(const Lattice<bits>& a) {
  return {-a.v, a.m, a.grid};
}
template <int bits>
Lattice<bits> operator-(const Lattice<bits>& a, const Lattice<bits>& b) {
  return a + (-b);
}
template <int bits>
Lattice<bits> operator*(const Lattice<bits>& a, const Lattice<bits>& b) {
  const bool zero = a.grid == Lattice<bits>::no_grid || b.grid == Lattice<bits>::no_grid;
  return zero ? Lattice<bits>() : Lattice<bits>(a.v * b.v, a.m * b.m, a.grid + b.grid);
}

// Exact by a power of two that is itself exact in every order; by anything else
// the quotient rounds, and m says so.
template <int bits>
Lattice<bits> operator/(const Lattice<bits>& a, const Lattice<bits>& b) {
  if (a.grid == Lattice<bits>::no_grid) return {};
  int exponent = 0;
  const bool power_of_two = std::fabs(std::frexp(b.v, &exponent)) == 0.5;
  --exponent;
  if (!power_of_two || !is_exact(b)) return {0, std::numeric_limits<double>::infinity(), 0};
  return {a.v / b.v, std::ldexp(a.m, -exponent), a.grid - exponent};
}

template <int bits>
Lattice<bits> in_doubt() {
  return {0, std::numeric_limits<double>::infinity(), 0};
}

// A number that every kernel has at this point as one of its own: exact as itself where its computation was.
template <int bits>
Lattice<bits> computed(const Lattice<bits>& x) {
  return is_exact(x) ? Lattice<bits>(x.v, std::fabs(x.v), x.grid) : x;
}

template <int bits>
bool vanishes(const Lattice<bits>& x) {
  return x.grid == Lattice<bits>::no_grid;
}

template <int bits>
bool operator<(const Lattice<bits>& a, const Lattice<bits>& b) {
  return a.v < b.v;
}

// Every implementation has exp(0) = 1, and 0 far below the smallest subnormal, which is e^-103 in float32 and e^-745 in
// float64; no other value is sure. So with log: log(1) = 0. A number in doubt stays so.
template <int bits>
Lattice<bits> exp(const Lattice<bits>& y) {
  if (!is_exact(y)) return in_doubt<bits>();
  if (y.v == 0) return Lattice<bits>(1);
  return y.v <= (bits == 24 ? -200 : -1000) ? Lattice<bits>() : in_doubt<bits>();
}
template <int bits>
Lattice<bits> log(const Lattice<bits>& s) {
  return is_exact(s) && s.v == 1 ? Lattice<bits>() : in_doubt<bits>();
}

// The contract's epsilons vanish against a denominator of at least 2^-12: 1e-20
// is below half an ulp of it even in float64 (2^-12 * 2^-53 > 1e-20). A smaller
// one that is not 0, and a sum to 0 that some order may round, are in doubt.
template <int bits>
struct PowerOfTen<Lattice<bits>> {
  static Lattice<bits> of(int) { return {}; }
};
template <int bits>
Branch branch(const Lattice<bits>& den, int) {
  if (std::fabs(den.v) >= 0x1p-12) return Branch::divide;
  return den.v == 0 && is_exact(den) ? Branch::cut : Branch::either;
}

}  // namespace fractus::oracle
