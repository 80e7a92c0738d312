// Roots, angles, sin, cos and tanh on Companions.
//
// None is a polynomial, so each closes a Companion: m = |f(v)|, n = the roundings of f itself, and e = the most by
// which f moves over the whole interval |x - v| <= error(x), bounded by an identity or an inequality that holds on all
// of it.
//
// No e saturates (at 2 for sin, say): e stays convex in error(x), so that the base's own error, which is a small share
// of error(x), is at most that share of e (Expected::radius_per_tolerance).
#pragma once

#include "oracle/companion.h"

namespace fractus::oracle {

// What is asked of a kernel's sin, cos, tanh and atan2, in unit roundoffs: 4 units in the last place, at arguments of
// any size. torch's vector code has sin and cos from Sleef's u35 versions (3.5 units), CUDA's atan2f is good to 3.
inline constexpr double trigonometric_roundings = 8;
// 2 units in the last place, for a kernel that multiplies by the reciprocal root. IEEE asks for half of one.
inline constexpr double root_roundings = 4;
// sin and cos of an angle, or x/r and y/r for r = sqrt(x^2 + y^2), whose r is off by 1 + root_roundings and whose
// quotient by 2: either 8. Then a product and a sum, of two such factors.
inline constexpr double rotated_roundings = 2 * trigonometric_roundings + 2;
// The base's own value of a derivative, on top of what the interval adds.
inline constexpr double slope_slack = 0x1p-40;

// f with |f(x) - f(v)| <= moved. A result below the normal range may be flushed to 0.
template <DType judged>
Companion<judged> stepped(Base<judged> v, double roundings, double moved) {
  const double m = magnitude(v);
  const double flushed = judged == DType::float32 ? 0x1p-126 : 0x1p-1022;
  return {v, m, roundings, std::min(moved, unbounded) + flushed, std::max(m, 1.0)};
}

// By how much sin (or cos) moves over |d| <= error, given the derivative's value there: f(v + d) - f(v) =
// f'(v) d - f(xi) d^2/2, and the mean value theorem bounds it by |d|.
inline double turned(double slope, double error) {
  return std::min(error, (std::fabs(slope) + slope_slack) * error + error * error / 2);
}

template <DType judged>
Companion<judged> sin(const Companion<judged>& x) {
  if (vanishes(x)) return {};
  return stepped<judged>(std::sin(x.v), trigonometric_roundings, turned(magnitude(std::cos(x.v)), error(x)));
}

template <DType judged>
Companion<judged> cos(const Companion<judged>& x) {
  return stepped<judged>(std::cos(x.v), trigonometric_roundings, turned(magnitude(std::sin(x.v)), error(x)));
}

// The derivative 1/cosh^2 falls with |x|, so it is largest at the interval's point nearest to 0.
template <DType judged>
Companion<judged> tanh(const Companion<judged>& x) {
  if (vanishes(x)) return {};
  const double distance = error(x), nearest = std::max(0.0, magnitude(x.v) - distance) * (1 - 0x1p-50);
  const double cosh = std::cosh(std::min(nearest, 700.0));
  return stepped<judged>(std::tanh(x.v), trigonometric_roundings, distance * (1 + slope_slack) / (cosh * cosh));
}

// |sqrt(x) - sqrt(v)| = |x - v| / (sqrt(x) + sqrt(v)), the most where x is least. No bound where x may be below 0.
template <DType judged>
Companion<judged> sqrt(const Companion<judged>& x) {
  if (vanishes(x)) return {};
  const Denominator<judged> known(x);
  if (!(x.v > 0) || !known.bounded()) return {Base<judged>(0), 0, root_roundings, unbounded, 1};
  const Base<judged> v = std::sqrt(x.v);
  const double sum = static_cast<double>(v) + std::sqrt(known.lower);
  return stepped<judged>(v, root_roundings, known.error * (1 + slope_slack) / sum);
}

// The angle on the circle: v lies in [-pi, pi], and e is a distance on the circle, so a kernel whose (x, y) comes out
// on the other side of the branch cut has this angle less a whole turn and is no further from it. m = |v| is pi there,
// whichever side it is on.
//
// For (x', y') within the errors, tan of the angle between the two is |x y' - y x'| / (x x' + y y'), whose numerator is
// at most |x| e_y + |y| e_x and whose denominator, the certified part, at least x^2 + y^2 - |x| e_x - |y| e_y. Where
// that is not above 0, (0, 0) itself may lie among them as far as this tells, and there is no bound.
template <DType judged>
Companion<judged> atan2(const Companion<judged>& y, const Companion<judged>& x) {
  // 0 in every kernel, with a rounding of nothing: where y is 0 and x certified to be above it.
  const double ex = error(x), ey = error(y);
  if (vanishes(y) && x.v > 0 && Denominator<judged>(x).bounded()) return {};
  const double ax = magnitude(x.v), ay = magnitude(y.v), scale = std::max(ax, ay);
  if (!(scale > 0)) return {Base<judged>(0), 0, trigonometric_roundings, unbounded, 1};
  const double cx = ax / scale, cy = ay / scale, dx = ex / scale, dy = ey / scale;  // so that no square overflows
  const double along = (cx * cx + cy * cy) * (1 - 0x1p-50) - (cx * dx + cy * dy) * (1 + base_slack);
  if (!(along > 0)) return {Base<judged>(0), 0, trigonometric_roundings, unbounded, 1};
  return stepped<judged>(std::atan2(y.v, x.v), trigonometric_roundings,
                         (cx * dy + cy * dx) * (1 + slope_slack) / along);
}

// A kernel may hold the unit vector (x/r, y/r) in the angle's place. Its derivative goes there through
// (x-bar r^2 - (x-bar x + y-bar y) x)/r^3, which is that of the angle with a radial part that cancels: m has both, as
// (|x| + |y|)/r^2 >= 1/r, twice since |x-bar| (1 + x^2/r^2) is at most twice |x-bar|.
// x and y are numbers that every kernel has, so what cancelled in their sums is not in m: of many phases all around the
// circle hardly anything may be left.
template <DType judged>
AngleGradient<Companion<judged>> angle_gradient(const Companion<judged>& sum_y, const Companion<judged>& sum_x) {
  const auto closed = [](const Companion<judged>& a) {
    return Companion<judged>{a.v, magnitude(a.v), 0, error(a), std::max(a.w, magnitude(a.v))};
  };
  const Companion<judged> y = closed(sum_y), x = closed(sum_x);
  const Companion<judged> square = x * x + y * y;
  AngleGradient<Companion<judged>> gradient{x / square, -(y / square)};
  const double m = 2 * (gradient.x.m + gradient.y.m), n = gradient.y.n + 2 * trigonometric_roundings;
  gradient.x.m = gradient.y.m = m;
  gradient.x.n = gradient.y.n = n;
  return gradient;
}

// a - b as a closed step: both angles are numbers that the kernel holds.
template <DType judged>
Companion<judged> difference(const Companion<judged>& a, const Companion<judged>& b) {
  const double e = error(a) + error(b);
  return {a.v - b.v, magnitude(a.v) + magnitude(b.v), 1, e, 1};
}

// Of the difference, with its own rounding, or as the rotated product, whose two terms m holds. Both turn by the
// kernel's own angle: cos a' cos b + sin a' sin b = cos(a' - b), so what the angle's error moves is the same for
// either.
template <DType judged>
Companion<judged> cos_of_difference(const Companion<judged>& a, const Companion<judged>& b) {
  const Companion<judged> d = difference(a, b);
  const double sa = magnitude(std::sin(a.v)), ca = magnitude(std::cos(a.v));
  const double sb = magnitude(std::sin(b.v)), cb = magnitude(std::cos(b.v));
  Companion<judged> result =
      stepped<judged>(std::cos(d.v), rotated_roundings, turned(magnitude(std::sin(d.v)), error(d)));
  result.m = (ca * cb + sa * sb) * (1 + slope_slack);
  return result;
}

// As a derivative of the rotated product it reaches the angle, or the unit vector, as two sums over all b (of cos b and
// of sin b, each with its cotangents), whose radial part cancels only then: m holds all four products.
template <DType judged>
Companion<judged> sin_of_difference(const Companion<judged>& a, const Companion<judged>& b) {
  const Companion<judged> d = difference(a, b);
  const double sa = magnitude(std::sin(a.v)), ca = magnitude(std::cos(a.v));
  const double sb = magnitude(std::sin(b.v)), cb = magnitude(std::cos(b.v));
  Companion<judged> result =
      stepped<judged>(std::sin(d.v), rotated_roundings, turned(magnitude(std::cos(d.v)), error(d)));
  result.m = (sa + ca) * (sb + cb) * (1 + slope_slack);
  return result;
}

}  // namespace fractus::oracle
