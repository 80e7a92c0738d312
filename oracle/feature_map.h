// The feature map of the attention, elu(x) + 1, over any number type: x + 1 for x > 0, else exp(x).
#pragma once

#include "oracle/companion_softmax.h"
#include "oracle/number.h"

namespace fractus::oracle {

template <class R>
struct Feature {
  R value, slope;
};

template <class R>
Feature<R> feature(const R& x) {
  if (R(0) < x) return {x + R(1), R(1)};
  const R e = exp_of(x);
  return {e, e};
}

// Both branches meet at 0 in value and slope, so a kernel whose x has another sign than ours is no exception: the map
// moves by at most its slope, the slope by at most its own, over the interval; either is exp at the interval's upper
// end, and at most 1.
//
// For x <= 0 a kernel may take (exp(x) - 1) + 1 or expm1(x) + 1: exp or expm1 to 2 units in the last place, of at most
// 1 together, a difference and a sum of at most 1 each. The slope may be exp(x) or the value itself.
template <DType judged>
Feature<Companion<judged>> feature(const Companion<judged>& x) {
  using R = Companion<judged>;
  const double v = static_cast<double>(x.v), moved = error(x), u = unit_roundoff(judged);
  const double steepest = std::exp(std::min(0.0, v + moved)) * (1 + 0x1p-40);
  const bool may_be_low = v - moved * (1 + base_slack) <= 0;
  const double of_exp = may_be_low ? (library_roundings + 2) * u * (1 + 0x1p-20) : 0;
  const auto closed = [](Base<judged> f, double e) {
    const double m = magnitude(f);
    return R{f, m, 0, std::min(e, unbounded), std::max(m, 1.0)};
  };
  const Base<judged> value = x.v > 0 ? x.v + 1 : std::exp(x.v), slope = x.v > 0 ? Base<judged>(1) : std::exp(x.v);
  const double inherited = moved * steepest;
  const double of_sum = v + moved > 0 ? u * (1 + std::max(0.0, v) + moved) : 0;
  return {closed(value, inherited + of_exp + of_sum), closed(slope, may_be_low ? inherited + of_exp : 0)};
}

// KERNELS.md, shared edge: beyond it exp overflows, and `where` over both branches has a NaN gradient.
template <DType judged>
bool beyond_exp(const Companion<judged>& x) {
  return static_cast<double>(x.v) + error(x) > (judged == DType::float32 ? 88 : 709);
}

}  // namespace fractus::oracle
