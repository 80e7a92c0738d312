// Companion: a number that knows how far a correct kernel of lower precision may be from it.
//
// (v, m, n, e, w): v the value in a base wider than the judged type; m the same polynomial at absolute values; n the
// most roundings on any path to it; e the error inherited through steps that are not polynomial, and through underflow;
// w the largest factor of any monomial in it. With u the judged type's unit roundoff and gamma(n) = nu/(1-nu),
//
//     error(x) = gamma(n) (m + e) + e
//
// bounds |computed - v| for EVERY order, blocking and distribution of the same sums and products, since n counts the
// longest path and m ignores cancellation (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1
// and 3.4).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "contracts/dtype.h"
#include "oracle/number.h"

namespace fractus::oracle {

template <DType judged>
struct BaseOf;
template <>
struct BaseOf<DType::float32> {
  using type = double;
  static constexpr double unit_roundoff = 0x1p-53;
};
// 11 bits beyond double leave a radius of a thousandth of the tolerance, which decides all but one element in a
// thousand of those that reach their bound; the processor does it, while 113 bits in software took a third of a run.
template <>
struct BaseOf<DType::float64> {
  using type = long double;
  static_assert(std::numeric_limits<long double>::digits >= 64, "float64 is judged with at least 64 bits");
  static constexpr double unit_roundoff = 0x1p-64;
};

template <DType judged>
using Base = typename BaseOf<judged>::type;

// Stands for "no bound": larger than any error that a contract's domain allows, and finite, so that 0 times it is 0.
inline constexpr double unbounded = 1e150;

template <DType judged>
inline double gamma(double roundings) {
  const double nu = roundings * unit_roundoff(judged);
  return nu < 1 ? nu / (1 - nu) : unbounded;
}

inline double magnitude(double x) { return std::fabs(x); }
inline double magnitude(long double x) { return std::fabs(static_cast<double>(x)); }

// v is off by less than this share of error(x), its radius (see radius_per_tolerance), and so are m and e, as sums in
// double.
inline constexpr double base_slack = 0x1p-9;

template <DType judged>
struct Companion {
  Base<judged> v = 0;
  double m = 0;
  double n = 0;
  double e = 0;
  double w = 0;

  Companion() = default;
  // A leaf: an input, exact in the judged type.
  explicit Companion(double x) : v(x), m(std::fabs(x)), w(std::fabs(x)) {}
  Companion(Base<judged> value, double absolute, double roundings, double inherited, double factor)
      : v(value), m(absolute), n(roundings), e(inherited), w(factor) {}
};

// The most by which a correct evaluation in the judged type may miss v.
template <DType judged>
double error(const Companion<judged>& x) {
  return gamma<judged>(x.n) * (x.m + x.e) + x.e;
}

// Whatever led to it, e is all of its error, and no further order of evaluation looks behind it.
template <DType judged>
Companion<judged> computed(const Companion<judged>& x) {
  return {x.v, magnitude(x.v), 0, error(x), magnitude(x.v)};
}

// A product below the normal range is off by up to the smallest subnormal, and another order of the same product may
// meet that underflow before its last factor, which then amplifies it; w bounds that factor.
template <DType judged>
double underflow(double wa, double wb) {
  return smallest_subnormal(judged) * (1 + std::max(wa, wb));
}

template <DType judged>
Companion<judged> operator+(const Companion<judged>& a, const Companion<judged>& b) {
  return {a.v + b.v, a.m + b.m, std::max(a.n, b.n) + 1, a.e + b.e, std::max(a.w, b.w)};
}

template <DType judged>
Companion<judged> operator-(const Companion<judged>& a) {
  return {-a.v, a.m, a.n, a.e, a.w};
}

template <DType judged>
Companion<judged> operator-(const Companion<judged>& a, const Companion<judged>& b) {
  return a + (-b);
}

template <DType judged>
Companion<judged> operator*(const Companion<judged>& a, const Companion<judged>& b) {
  return {a.v * b.v, a.m * b.m, a.n + b.n + 1, a.e * b.m + a.m * b.e + a.e * b.e + underflow<judged>(a.w, b.w),
          std::max(a.w, b.w)};
}

// What is known of a denominator: its certified lower bound, or none.
template <DType judged>
struct Denominator {
  Base<judged> v;
  double error;
  double lower;  // |den| - error, rounded down; not positive where the sign itself is in doubt

  explicit Denominator(const Companion<judged>& den)
      : v(den.v),
        error(oracle::error(den)),
        lower(static_cast<double>(std::fabs(v) - error * (1 + base_slack)) * (1 - 0x1p-50)) {}
  bool bounded() const { return lower > 0; }
};

// The quotient stays a polynomial in its numerator: m and n pass through, divided by the least |den|, and two roundings
// are added since a kernel may multiply by the reciprocal. So a kernel that divides first and sums afterwards
// (normalised scores) is inside the same bound; e carries only what the denominator's own error adds,
// |a/b' - a/b| <= |a/b| error(b) / (|b| - error(b)).
template <DType judged>
Companion<judged> operator/(const Companion<judged>& a, const Denominator<judged>& den) {
  if (a.m == 0 && a.e == 0) return {};
  if (!den.bounded()) return {Base<judged>(0), 0, a.n + 2, unbounded, unbounded};
  const Base<judged> v = a.v / den.v;
  const double inherited = (a.e + magnitude(v) * den.error) / den.lower + underflow<judged>(a.w, 0);
  return {v, a.m / den.lower, a.n + 2, inherited, std::max({a.w, magnitude(v), 1 / den.lower})};
}

template <DType judged>
Companion<judged> operator/(const Companion<judged>& a, const Companion<judged>& b) {
  return a / Denominator<judged>(b);
}

template <DType judged>
void may_add(Companion<judged>& x, std::size_t terms) {
  x.n += static_cast<double>(terms);
}

// 0 in every kernel, and its product with anything.
template <DType judged>
bool vanishes(const Companion<judged>& x) {
  return x.v == 0 && x.m == 0 && x.e == 0;
}

template <DType judged>
void may_round_as(Companion<judged>& x, const Companion<judged>& numbers) {
  x.m = std::max(x.m, numbers.m + numbers.e);
  x.n = std::max(x.n, numbers.n);
}

// Stands for each of several numbers: in the middle of them, with room for all. base_slack of the half is room for the
// radius of an interval this wide, so that its ends are decided.
template <DType judged>
Companion<judged> hull(const std::vector<Companion<judged>>& list) {
  Companion<judged> result = list.front();
  Base<judged> low = result.v, high = result.v;
  for (const Companion<judged>& x : list) {
    low = std::min(low, x.v);
    high = std::max(high, x.v);
    result.m = std::max(result.m, x.m);
    result.n = std::max(result.n, x.n);
    result.e = std::max(result.e, x.e);
    result.w = std::max(result.w, x.w);
  }
  const Base<judged> half = (high - low) / 2;
  result.v = low + half;
  result.e += magnitude(half) * (1 + base_slack);
  return result;
}

// The constant itself, not the double nearest to it: the base may be wider than double. The kernel's own is rounded
// once.
template <DType judged>
struct PowerOfTen<Companion<judged>> {
  static Companion<judged> of(int exponent) {
    Base<judged> power = 1;  // exact up to 10^22 in double and 10^27 in long double
    for (int i = 0; i < std::abs(exponent); ++i) power *= 10;
    const Base<judged> v = exponent < 0 ? Base<judged>(1 / power) : power;
    return {v, magnitude(v), 1, 0, magnitude(v)};
  }
};

// The threshold is rounded to the judged type by the kernel, which moves it by at most u relative.
template <DType judged>
Branch branch(const Companion<judged>& den, int exponent) {
  const Base<judged> threshold = power_of_ten<Companion<judged>>(exponent).v;
  const Base<judged> slack = error(den) * (1 + base_slack) + 2 * unit_roundoff(judged) * threshold;
  const Base<judged> distance = std::fabs(den.v) - threshold;
  if (distance > slack) return Branch::divide;
  if (distance < -slack) return Branch::cut;
  return Branch::either;
}

}  // namespace fractus::oracle
