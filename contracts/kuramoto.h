// kuramoto(hidden, omega, coupling_u, coupling_lambda, n_steps, dt, damping) -> theta (B,T,P): P coupled oscillators a
// token, started by the mean of its hidden row (B,T,d) and run for n_steps of classical RK4 of step dt:
//
//   theta0_p = (2 pi mean(hidden) + 2 pi p / P) mod 2 pi                                           (floor modulus)
//   f(theta) = omega - damping theta + cos theta * (U diag(lambda) U^T sin theta)
//                                    - sin theta * (U diag(lambda) U^T cos theta),                 U = coupling_u (P,r)
//
// each step followed by mod 2 pi. Angles are compared on the circle. Every wrap is a decision under rounding, since
// damping acts on the wrapped angle: where its certified interval straddles a multiple of 2 pi, either branch is right.
#pragma once

#include "contracts/contract.h"

namespace fractus::kuramoto {

const Contract& contract();

}  // namespace fractus::kuramoto
