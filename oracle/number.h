// What a definition asks of a number system beyond + - * /.
//
// A definition is written once, over a number type R. These overloads are its only questions to the number system:
// where a constant comes from, on which side of a cut a denominator lies, and what exp, log, roots and angles mean.
#pragma once

#include <cmath>
#include <cstddef>

namespace fractus::oracle {

// A cut sends a row to `divide` or to `cut`. `either`: the certified interval straddles the threshold, so both are
// right.
enum class Branch { divide, cut, either };

// 10^exponent in the number system. Specialised where the nearest double is not what the contract means (exact types).
template <class R>
struct PowerOfTen {
  static R of(int exponent) { return R(std::pow(10.0, exponent)); }
};
template <class R>
R power_of_ten(int exponent) {
  return PowerOfTen<R>::of(exponent);
}

// |den| > 10^exponent decides. Right for every type that is ordered and carries no interval.
template <class R>
Branch branch(const R& den, int exponent) {
  using std::abs;
  return abs(den) > power_of_ten<R>(exponent) ? Branch::divide : Branch::cut;
}

// A kernel may add `terms` more terms into the accumulator of x than the definition's own order does: only a type that
// counts roundings cares.
template <class X>
void may_add(X&, std::size_t) {}

// A kernel may come to x by way of these numbers, which then cancel: only a type that counts roundings cares.
template <class X>
void may_round_as(X&, const X& /*numbers*/) {}

// A number that every kernel has as one of its own at this point, however it came by it: only a type that looks into
// the sums behind a number cares.
template <class X>
X computed(const X& x) {
  return x;
}

// Is x a 0 that adds nothing to whatever it multiplies? Only a type that is slow asks.
template <class X>
bool vanishes(const X&) {
  return false;
}

// The numbers that exp takes and log gives. Reals are their own exponents; where exp is no function of the system (a
// prime field), exponents are a sort of their own, and exp and log lead from one to the other.
template <class R>
struct ExponentOf {
  using type = R;
};
template <class R>
using Exponent = typename ExponentOf<R>::type;

// The larger of two exponents. A definition asks for it only where any other shift gives the same value, so a system
// without an order answers with either.
template <class X>
X larger(const X& a, const X& b) {
  return a < b ? b : a;
}

// exp(x), and log(x) as an exponent: the standard's for built-in types, else those declared beside the number type.
template <class X>
auto exp_of(const X& x) {
  using std::exp;
  return exp(x);
}
template <class X>
auto log_of(const X& x) {
  using std::log;
  return log(x);
}

// The same of the functions that are no exponentials.
template <class X>
X sqrt_of(const X& x) {
  using std::sqrt;
  return sqrt(x);
}
template <class X>
X sin_of(const X& x) {
  using std::sin;
  return sin(x);
}
template <class X>
X cos_of(const X& x) {
  using std::cos;
  return cos(x);
}
template <class X>
X tanh_of(const X& x) {
  using std::tanh;
  return tanh(x);
}

// The angle of (x, y), known up to whole turns where a type carries an interval: only what has the period 2 pi may be
// made of it.
template <class X>
X atan2_of(const X& y, const X& x) {
  using std::atan2;
  return atan2(y, x);
}

// Sine and cosine of a - b for two angles. A kernel may turn by the difference, or take the rotated product
// cos a cos b + sin a sin b: the same function, but not the same roundings.
template <class X>
X sin_of_difference(const X& a, const X& b) {
  return sin_of<X>(a - b);
}
template <class X>
X cos_of_difference(const X& a, const X& b) {
  return cos_of<X>(a - b);
}

// The derivatives of atan2(y, x).
template <class X>
struct AngleGradient {
  X y, x;
};
template <class X>
AngleGradient<X> angle_gradient(const X& y, const X& x) {
  const X square = x * x + y * y;
  return {x / square, -(y / square)};
}

}  // namespace fractus::oracle
