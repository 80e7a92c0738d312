// The references' own parts, which those of moe and block_core are made of. Nothing outside of this folder sees them.
#pragma once

#include <ATen/ATen.h>

#include <string>

namespace fractus::reference {

struct Gate {
  at::Tensor gates, index, weights, balance;
};

// Throws std::invalid_argument, "KERNEL: ..." , where top_k or kappa / temperature leave moe_gate's domain.
void check_routing(const std::string& kernel, double kappa, double temperature, double top_k, std::int64_t experts);

// Throws std::invalid_argument where a number is not finite: names the tensor and the place in all but its last extent,
// counted over the whole tensor, as a number of what `row` says.
void check_finite(const std::string& kernel, const std::string& name, const at::Tensor& tensor, const std::string& row);

// phases (B,T,P), mu (E) without gradient.
Gate gate(const at::Tensor& phases, const at::Tensor& mu, double steepness, std::int64_t top_k);

struct Oscillators {
  at::Tensor omega, U, lambda;
};

// hidden (B,T,d) -> theta (B,T,P).
at::Tensor oscillate(const at::Tensor& hidden, const Oscillators& of, double steps, double dt, double damping);

// As many experts as there are entries of the outermost extent; either w1 and w2, or the others.
struct Experts {
  at::Tensor w1, w2, U1, V1, U2, V2, scale1, scale2, b1, b2;
};

// x (N,d), index and weights (N,top_k) -> (N,d).
at::Tensor mixture(const at::Tensor& x, const at::Tensor& index, const at::Tensor& weights, const Experts& experts);

}  // namespace fractus::reference
