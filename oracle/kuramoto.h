// The oscillators, once, over any number type. KERNELS.md has the contract:
//
//   theta0_p = (2 pi mean(hidden) + 2 pi p / P) mod 2 pi                                            (floor modulus)
//   f(theta) = omega - damping theta + cos theta * (U diag(lambda) U^T sin theta)
//                                    - sin theta * (U diag(lambda) U^T cos theta)
//
// and n_steps of classical RK4, each followed by mod 2 pi. A token knows nothing of the others.
//
// The derivative of mod is 1, and sin and cos do not see whole turns; but damping acts on the wrapped angle, and so
// moves the angles of later stages with it. So a branch of a wrap is followed to the end, gradients included, whereas
// what the last wrap of all does to an angle, and to its gradient, is nothing.
#pragma once

#include <cstddef>

#include "oracle/row.h"

namespace fractus::oracle {

// A kernel may take sines and cosines of differences of these angles: only a type that counts roundings cares.
template <class X>
void may_take_differences(Row<X>&) {}

// sin and cos of an angle that a kernel may have turned by up to `common`, all angles of a token alike: only a type
// that carries errors cares.
template <class X>
X sin_if_turned(const X& angle, double) {
  return sin_of(angle);
}
template <class X>
X cos_if_turned(const X& angle, double) {
  return cos_of(angle);
}

}  // namespace fractus::oracle

namespace fractus::oracle::kuramoto {

// What all tokens of a call share: P oscillators, coupled with rank r.
template <class X>
struct Network {
  Row<X> omega;            // (P)
  Matrix<X> U;             // P rows of r
  Matrix<X> U_transposed;  // the same numbers, r rows of P
  Row<X> lambda;           // (r)
  Row<X> offsets;          // 2 pi p / P
  X step{}, half_step{}, sixth_of_step{}, damping{};
};

// The angles before their first wrap, given 2 pi mean(hidden).
template <class X>
Row<X> started(const Network<X>& network, const X& angle) {
  Row<X> theta(network.offsets.size());
  for (std::size_t p = 0; p < theta.size(); ++p) theta.set(p, angle + network.offsets.get(p));
  return theta;
}

// f(theta). With K = U diag(lambda) U^T, its coupling is sum_j K_ij sin(theta_j - theta_i), and Im(conj(w_i) (K w)_i)
// for w = exp(i theta): the same products of U, lambda, sines and cosines in other orders.
template <class X>
Row<X> rate(const Network<X>& network, const Row<X>& theta, double common) {
  const std::size_t P = theta.size(), r = network.lambda.size();
  Row<X> angle = theta;
  may_take_differences(angle);
  Row<X> sine(P), cosine(P);
  for (std::size_t p = 0; p < P; ++p) {
    sine.set(p, sin_if_turned(X(angle.get(p)), common));
    cosine.set(p, cos_if_turned(X(angle.get(p)), common));
  }
  Row<X> by_sine(r), by_cosine(r);
  for (std::size_t k = 0; k < r; ++k) {
    by_sine.set(k, network.lambda.get(k) * dot(network.U_transposed[k], sine));
    by_cosine.set(k, network.lambda.get(k) * dot(network.U_transposed[k], cosine));
  }
  Row<X> f(P);
  for (std::size_t p = 0; p < P; ++p) {
    const X coupling = cosine.get(p) * dot(network.U[p], by_sine) - sine.get(p) * dot(network.U[p], by_cosine);
    X sum = (network.omega.get(p) - network.damping * theta.get(p)) + coupling;
    may_add(sum, 4);  // the four terms in another order, and one to spare
    f.set(p, sum);
  }
  return f;
}

// One step of classical RK4, before its wrap.
template <class X>
Row<X> stepped(const Network<X>& network, const Row<X>& theta, double common) {
  const auto moved = [&](const X& h, const Row<X>& k) {
    Row<X> result = theta;
    add_product(result, h, k);
    return result;
  };
  const Row<X> k1 = rate(network, theta, common), k2 = rate(network, moved(network.half_step, k1), common),
               k3 = rate(network, moved(network.half_step, k2), common),
               k4 = rate(network, moved(network.step, k3), common);
  Row<X> sum(theta.size());
  for (std::size_t p = 0; p < sum.size(); ++p) {
    X k = (k1.get(p) + (k2.get(p) + k2.get(p))) + ((k3.get(p) + k3.get(p)) + k4.get(p));
    may_add(k, 4);  // in another order, or each added to theta by itself
    sum.set(p, k);
  }
  return moved(network.sixth_of_step, sum);
}

// From the angles before their first wrap to those before their last one. wrap(x, common) takes whole turns off an
// angle; common is what may have turned all angles alike, at first, and `growth` by how much a step enlarges it.
template <class X, class Wrap>
Row<X> run(const Network<X>& network, Row<X> theta, std::size_t n_steps, const Wrap& wrap, double common = 0,
           double growth = 1) {
  for (std::size_t step = 0; step < n_steps; ++step) {
    Row<X> on_circle(theta.size());
    for (std::size_t p = 0; p < theta.size(); ++p) on_circle.set(p, wrap(X(theta.get(p)), common));
    common *= growth;
    theta = stepped(network, on_circle, common);
  }
  return theta;
}

}  // namespace fractus::oracle::kuramoto
