// exp, roots, angles, sin, cos and tanh on the tape, where exponents are no sort of their own (tape_exponent.h). Each
// derivative is asked of R, so that a type that counts roundings counts those of the derivative too.
#pragma once

#include "oracle/tape.h"

namespace fractus::oracle {

// f(a), given its value and its derivative.
template <class R>
Taped<R> taped(const R& value, const Taped<R>& a, const R& derivative) {
  return Taped<R>::record(value, a, derivative, Taped<R>(), R(0));
}

template <class R>
Taped<R> computed(const Taped<R>& a) {
  return {computed(a.value), a.node};
}
template <class R>
Taped<R> exp(const Taped<R>& a) {
  const R value = exp_of(a.value);
  return taped(value, a, value);
}
template <class R>
Taped<R> sqrt(const Taped<R>& a) {
  const R root = sqrt_of(a.value);
  return taped(root, a, R(1) / (R(2) * root));
}
template <class R>
Taped<R> sin(const Taped<R>& a) {
  return taped(sin_of(a.value), a, cos_of(a.value));
}
template <class R>
Taped<R> cos(const Taped<R>& a) {
  return taped(cos_of(a.value), a, -sin_of(a.value));
}
template <class R>
Taped<R> tanh(const Taped<R>& a) {
  const R value = tanh_of(a.value);
  return taped(value, a, R(1) - value * value);
}

template <class R>
Taped<R> atan2(const Taped<R>& y, const Taped<R>& x) {
  const AngleGradient<R> gradient = angle_gradient(y.value, x.value);
  return Taped<R>::record(atan2_of(y.value, x.value), y, gradient.y, x, gradient.x);
}
template <class R>
Taped<R> sin_of_difference(const Taped<R>& a, const Taped<R>& b) {
  const R slope = cos_of_difference(a.value, b.value);
  return Taped<R>::record(sin_of_difference(a.value, b.value), a, slope, b, -slope);
}
template <class R>
Taped<R> cos_of_difference(const Taped<R>& a, const Taped<R>& b) {
  const R slope = sin_of_difference(a.value, b.value);
  return Taped<R>::record(cos_of_difference(a.value, b.value), a, -slope, b, slope);
}

}  // namespace fractus::oracle
