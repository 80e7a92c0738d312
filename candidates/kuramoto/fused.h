// The oscillators in one node of the graph, for whoever has them inside.
#pragma once

#include <ATen/ATen.h>

namespace fractus::kuramoto {

// hidden (B,T,d) -> theta (B,T,P). Nothing is checked.
at::Tensor oscillate(const at::Tensor& hidden, const at::Tensor& omega, const at::Tensor& coupling_u,
                     const at::Tensor& coupling_lambda, std::int64_t steps, double dt, double damping);

}  // namespace fractus::kuramoto
