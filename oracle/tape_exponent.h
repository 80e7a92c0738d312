// Exponents on the tape: the derivative of exp is exp, that of log the reciprocal, and the partials between exponents
// are numbers, whatever the exponents themselves are.
#pragma once

#include "oracle/tape.h"

namespace fractus::oracle {

template <class R>
struct TapedExponent {
  Exponent<R> value{0};
  std::size_t node = Tape<R>::constant;

  TapedExponent() = default;
  explicit TapedExponent(int zero) : value(zero) {}
  TapedExponent(Exponent<R> x, std::size_t at) : value(x), node(at) {}
  static TapedExponent leaf(const Exponent<R>& x) { return {x, Taped<R>::tape->leaf()}; }

  friend TapedExponent operator+(const TapedExponent& a, const TapedExponent& b) {
    return {a.value + b.value, Taped<R>::tape->push({{a.node, b.node}, {R(1), R(1)}})};
  }
  friend TapedExponent operator-(const TapedExponent& a, const TapedExponent& b) {
    return {a.value - b.value, Taped<R>::tape->push({{a.node, b.node}, {R(1), -R(1)}})};
  }
  // A mean: the count is a constant.
  friend TapedExponent operator/(const TapedExponent& a, const Taped<R>& count) {
    return {a.value / count.value, Taped<R>::tape->push({{a.node, Tape<R>::constant}, {R(1) / count.value, R(0)}})};
  }
  friend Taped<R> exp(const TapedExponent& x) {
    const R e = exp_of(x.value);
    return {e, Taped<R>::tape->push({{x.node, Tape<R>::constant}, {e, R(0)}})};
  }
};

template <class R>
struct ExponentOf<Taped<R>> {
  using type = TapedExponent<R>;
};

template <class R>
TapedExponent<R> log(const Taped<R>& s) {
  return {log_of(s.value), Taped<R>::tape->push({{s.node, Tape<R>::constant}, {R(1) / s.value, R(0)}})};
}

// The shift stays on the tape: that nothing flows through it is to be shown, not assumed.
template <class R>
TapedExponent<R> larger(const TapedExponent<R>& a, const TapedExponent<R>& b) {
  return larger(a.value, b.value) == b.value ? b : a;
}

}  // namespace fractus::oracle
