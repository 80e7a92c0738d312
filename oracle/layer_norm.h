// LayerNorm of one row and its adjoint, over any number type (Ba, Kiros and Hinton 2016; KERNELS.md: biased variance,
// eps 1e-5):
//
//   c = x - mean(x)     r = 1/sqrt(mean(c^2) + eps)     x_hat = c r     y = x_hat w + b
//
// and with g the cotangent of y, a = g w, beta = mean(a x_hat):
//
//   dw += g x_hat     db += g     dc = r (a - x_hat beta)     dx = dc - mean(dc)
#pragma once

#include <cstddef>

#include "oracle/number.h"
#include "oracle/row.h"

namespace fractus::oracle {

inline constexpr int layer_norm_exponent = -5;  // eps = 10^-5

template <class R>
struct Normed {
  Row<R> y, x_hat;
  R reciprocal{0};  // r
  R mean_y{0};      // of y: what the oscillators start from
};

template <class R>
struct NormGradients {
  Row<R> x, weight, bias;  // weight and bias: this row's share of the sum over rows
};

template <class R>
R mean(const Row<R>& x) {
  R sum(0);
  for (std::size_t i = 0; i < x.size(); ++i) sum = sum + x.get(i);
  return sum / R(static_cast<int>(x.size()));
}

template <class R>
Normed<R> layer_norm(const Row<R>& x, const Row<R>& weight, const Row<R>& bias) {
  const std::size_t d = x.size();
  const R m = mean(x);
  Normed<R> result{Row<R>(d), Row<R>(d)};
  Row<R> square(d);
  for (std::size_t i = 0; i < d; ++i) {
    const R c = x.get(i) - m;
    result.x_hat.set(i, c);
    square.set(i, c * c);
  }
  result.reciprocal = R(1) / sqrt_of<R>(mean(square) + power_of_ten<R>(layer_norm_exponent));
  for (std::size_t i = 0; i < d; ++i) {
    result.x_hat.set(i, result.x_hat.get(i) * result.reciprocal);
    result.y.set(i, result.x_hat.get(i) * weight.get(i) + bias.get(i));
  }
  result.mean_y = mean(result.y);
  return result;
}

// Roundings of autograd through other forms of the same: c/s in the place of c r, the derivative of r = v^(-1/2) as
// -r^3/2, factors 2 and 1/d applied one by one.
inline constexpr std::size_t layer_norm_further_roundings = 12;

// No adjoint flows through c's own mean but by dc: a kernel that leaves out the mean of x_hat beta, which is 0, and one
// that computes it are both inside, since mean(dc) has it as terms. So is one that never centres x,
//
//   dw += g (x r - mean r)      b = r^3 (mean(x) mean(a) - mean(a x))      dx = r a + b x - (b mean(x) + r mean(a))
//
// as torch's own layer_norm does: what such sums round, a share of |x| r, is in x_hat's own error, since forward a
// kernel rounds as much in mean(x).
template <class R>
NormGradients<R> layer_norm_adjoint(const Normed<R>& normed, const Row<R>& weight, const Row<R>& g) {
  const std::size_t d = g.size();
  NormGradients<R> result{Row<R>(d), Row<R>(d), g};
  Row<R> a(d);
  for (std::size_t i = 0; i < d; ++i) {
    a.set(i, g.get(i) * weight.get(i));
    result.weight.set(i, g.get(i) * normed.x_hat.get(i));
  }
  may_add(result.weight, 2);
  const R beta = dot(a, normed.x_hat) / R(static_cast<int>(d));
  for (std::size_t i = 0; i < d; ++i) result.x.set(i, normed.reciprocal * (a.get(i) - normed.x_hat.get(i) * beta));
  const R mean_of_dc = mean(result.x);
  for (std::size_t i = 0; i < d; ++i) result.x.set(i, result.x.get(i) - mean_of_dc);
  may_add(result.x, layer_norm_further_roundings);
  return result;
}

}  // namespace fractus::oracle
