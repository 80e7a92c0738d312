// exp, log and the steps of a softmax on Companions.
//
// Exponents are closed: n = 0, and e alone bounds the error, since exp carries an error on and does not sum up
// roundings. The bounds are for every kernel whose exp and log are good to 2 units in the last place, in powers of e
// or of two, with any order of the sums and with a running maximum that rises at most Chain::rescalings times.
#pragma once

#include "oracle/companion_row.h"
#include "oracle/softmax_row.h"

namespace fractus::oracle {

inline constexpr double library_roundings = 4;   // 2 units in the last place are at most 4 unit roundoffs
inline constexpr double quotient_roundings = 2;  // as in Companion's quotient: a kernel may multiply by the reciprocal
inline constexpr double exponent_roundings = 3;  // the subtraction; log2(e), and the product with it, where 2^x is used
inline constexpr double rescaling_roundings = 6;  // exp(old maximum - new maximum), its product with the sum, one spare

// Where every implementation of exp gives 0, whether it flushes or not: half the smallest subnormal is e^-104 in
// float32 and e^-746 in float64. The room to that takes in the log of any sum that a quotient divides by instead.
template <DType judged>
inline constexpr double zero_below = judged == DType::float32 ? -200 : -1000;

template <DType judged>
inline constexpr double smallest_normal = judged == DType::float32 ? 0x1p-126 : 0x1p-1022;

// By how much exp(y) moves at most where y, whose exp is exp_y, moves by e: exp(y) (exp(e) - 1) to either side.
inline double inherited(double y, double exp_y, double e) {
  if (e < 0.5) return exp_y * (e / (1 - e / 2));  // the series of exp(e) - 1 term by term: 2/k! <= 2^(2-k)
  if (exp_y > 0 && e < 300) return exp_y * std::expm1(e);
  return y + e < 300 ? std::exp(y + e) : unbounded;  // masked: an error of 1e25 on a logit of -1e30 is no error of exp
}

// exp of the closed exponent (y, e), which rounds `roundings` times.
template <DType judged>
Companion<judged> exponential(Base<judged> y, double e, double roundings) {
  const double y_double = static_cast<double>(y);
  if (y_double + e <= zero_below<judged>) {
    // Exactly 0 in the kernel, so that its product with anything is 0 too; the value itself is all of the error.
    const Base<judged> v = y_double < 2 * zero_below<judged> ? Base<judged>(0) : std::exp(y);
    return {v, 0, 0, std::exp(y_double + e), 0};
  }
  const Base<judged> v = std::exp(y);
  const double m = magnitude(v);
  return {v, m, roundings, inherited(y_double, m, e) + smallest_normal<judged>, m};  // it may be flushed to 0
}

template <DType judged>
Companion<judged> closed(Base<judged> v, double e) {
  return {v, magnitude(v), 0, e, magnitude(v)};
}

template <DType judged>
Companion<judged> exp(const Companion<judged>& y) {
  return exponential<judged>(y.v, error(y), library_roundings);
}

// log(s (1 + d)) - log(s) is at most |d|/(1 - |d|).
template <DType judged>
Companion<judged> log(const Companion<judged>& s) {
  const Denominator<judged> denominator(s);
  if (!denominator.bounded()) return closed<judged>(0, unbounded);
  const Base<judged> v = std::log(s.v);
  const double moved = denominator.error / denominator.lower;
  return closed<judged>(v, moved + gamma<judged>(library_roundings) * (magnitude(v) + moved));
}

// The kernel's own maximum is another number than this one: at least what the kernel has for this element, and no more
// than the largest that it may have for any. Its e is that distance, which shifts y and log sum exp(y) alike and so
// costs nothing but their roundings (see shift).
template <DType judged>
Companion<judged> largest(const Row<Companion<judged>>& x) {
  std::size_t at = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x.v[at] < x.v[i]) at = i;
    most = std::max(most, static_cast<double>(x.v[i]) + x.e[i]);
  }
  return closed<judged>(x.v[at], std::max(x.e[at], most - static_cast<double>(x.v[at])) * (1 + 0x1p-50));
}

// x - a. The kernel's difference is at most |y| + e + e_a; log sum exp is larger by up to e_a too, and rounds 4 times
// (log); the running maximum's own differences lie between a and x and add up to y, so the roundings of them all are
// at most as many of y. Rounding y in the kernel's own shift, and log sum exp by e_a, is counted here for both.
template <DType judged>
void shift(Row<Companion<judged>>& x, const Companion<judged>& a) {
  const double rounding = gamma<judged>(exponent_roundings);
  const double of_shift = gamma<judged>(exponent_roundings + library_roundings) * a.e;
  const std::size_t size = x.size();
  Base<judged>* __restrict v = x.v.data();
  double* __restrict m = x.m.data();
  double* __restrict e = x.e.data();
  double most = 0;
#pragma omp simd reduction(max : most)
  for (std::size_t i = 0; i < size; ++i) {
    v[i] -= a.v;
    m[i] = std::fabs(static_cast<double>(v[i]));
    e[i] += rounding * (m[i] + e[i]) + of_shift;
    most = std::max(most, m[i]);
  }
  x.n = 0;
  x.w = most;
}

template <DType judged>
Row<Companion<judged>> exponentials(const Row<Companion<judged>>& y) {
  Row<Companion<judged>> result(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) result.set(i, exponential<judged>(y.v[i], y.e[i], library_roundings));
  return result;
}

// Each time that the maximum rises, what is summed so far may fall below the normal range and be flushed.
template <DType judged>
Companion<judged> total(const Row<Companion<judged>>& x, const Chain& chain) {
  Base<judged> v = 0;
  double m = 0, e = 0;
  const std::size_t size = x.size();
  for (std::size_t i = 0; i < size; ++i) v += x.v[i];
#pragma omp simd reduction(+ : m, e)
  for (std::size_t i = 0; i < size; ++i) {
    m += x.m[i];
    e += x.e[i];
  }
  const auto additions = static_cast<double>(chain.additions), rescalings = static_cast<double>(chain.rescalings);
  e += (rescalings + 1) * smallest_normal<judged>;
  return {v, m, x.n + additions + rescaling_roundings * rescalings, e, x.w};
}

// As exp(y - l), or as the quotient of exp(y), which a running maximum that rises later rescales, and the sum.
template <DType judged>
Row<Companion<judged>> probabilities(const Row<Companion<judged>>& y, const Companion<judged>& l, const Chain& chain) {
  const double roundings =
                   library_roundings + quotient_roundings + rescaling_roundings * static_cast<double>(chain.rescalings),
               rounding = gamma<judged>(exponent_roundings), error_of_l = error(l);
  Row<Companion<judged>> result(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double e = y.e[i] + error_of_l;
    result.set(i, exponential<judged>(y.v[i] - l.v, e + rounding * (y.m[i] + l.m + e), roundings));
  }
  return result;
}

// The elements that may be the kernel's maximum are those within their own errors of ours; any of them may take the
// whole of what is left of the sum, which is at most the error of a sum that is 0.
template <DType judged>
void may_return_sum(Row<Companion<judged>>& dx, const Row<Companion<judged>>& y, const Chain& chain) {
  double m = 0, e = 0, e_of_largest = 0;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    m += dx.m[i];
    e += dx.e[i];
    if (y.v[i] >= 0) e_of_largest = std::max(e_of_largest, y.e[i]);
  }
  const double left = error<judged>({0, m, dx.n + static_cast<double>(chain.additions), e, dx.w}) * (1 + base_slack);
  for (std::size_t i = 0; i < dx.size(); ++i)
    if (static_cast<double>(y.v[i]) + y.e[i] + e_of_largest >= 0) dx.e[i] += left;
}

template <DType judged>
void scale(Row<Companion<judged>>& x, const Companion<judged>& a) {
  const double floor = underflow<judged>(a.w, x.w);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool zero = x.m[i] == 0;  // in every kernel
    x.e[i] = x.e[i] * (a.m + a.e) + x.m[i] * a.e + (zero ? 0 : floor);
    x.v[i] *= a.v;
    x.m[i] *= a.m;
  }
  x.n += a.n + 1;
  x.w = std::max(x.w, a.w);
}

}  // namespace fractus::oracle
