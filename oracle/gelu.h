// gelu in the tanh form, with its derivative, over any number type that has a tanh:
//
//   gelu(x) = x/2 (1 + t)      t = tanh(c (x + k x^3))      c = sqrt(2/pi), k = 0.044715
//   gelu'(x) = (1 + t)/2 + x/2 (1 - t^2) c (1 + 3 k x^2)
//
// Both are polynomials in x and t, so Companion bounds every association of them: x^3 however it is multiplied, 3 k x^2
// as one product or as the sum of three, a kernel whose t is -1 far in the tail and who has then 0 or -0.
#pragma once

#include <cmath>

#include "oracle/companion_functions.h"
#include "oracle/number.h"

namespace fractus::oracle {

template <class R>
struct Gelu {
  R value, slope;
};

template <class R>
struct RootOfTwoOverPi {
  static R of() {
    using std::acos, std::sqrt;
    return sqrt(R(2) / acos(R(-1)));
  }
};
// A kernel's own is a root of a quotient by its pi, 3 roundings, or one of the constant.
template <DType judged>
struct RootOfTwoOverPi<Companion<judged>> {
  static Companion<judged> of() { return {Base<judged>(0.79788456080286535587989211986876374L), 0.8, 3, 0, 1}; }
};

template <class R>
Gelu<R> gelu(const R& given) {
  const R x = computed(given), one(1), half = one / R(2);
  const R c = RootOfTwoOverPi<R>::of(), k = R(44715) * power_of_ten<R>(-6);
  const R kx2 = k * x * x;
  const R t = tanh_of(computed(R(c * (x + kx2 * x))));
  const R left = half * (one + t);
  const R slope = left + half * x * (one - t * t) * (c * (one + (kx2 + kx2 + kx2)));
  return {computed(R(left * x)), computed(slope)};
}

}  // namespace fractus::oracle
