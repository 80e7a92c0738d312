// The oscillators in one node of the graph, for whoever has them inside.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "contracts/contract.h"

namespace fractus::kuramoto {

// Throws std::invalid_argument, "KERNEL: ...", where n_steps is no whole number from 0 on, or dt or damping not finite.
void check_steps(const std::string& kernel, const Scalars& scalars);

// hidden (B,T,d) -> theta (B,T,P). Nothing is checked.
at::Tensor oscillate(const at::Tensor& hidden, const at::Tensor& omega, const at::Tensor& coupling_u,
                     const at::Tensor& coupling_lambda, std::int64_t steps, double dt, double damping);

}  // namespace fractus::kuramoto
