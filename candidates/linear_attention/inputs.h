// A call's tensors by name, as the candidates read them.
#pragma once

#include "contracts/form.h"
#include "contracts/linear_attention.h"

namespace fractus::linear_attention {

struct Inputs {
  at::Tensor q, k, v;
  at::Tensor S0, z0;  // zeros where the caller gave none
  std::int64_t groups, tokens, width;

  bool empty() const { return groups == 0 || tokens == 0 || width == 0; }
};

inline Inputs checked(const Tensors& inputs) {
  check_inputs(contract(), inputs);
  const at::Tensor &q = inputs[0], &S0 = inputs[3], &z0 = inputs[4];
  const std::int64_t groups = q.size(0), tokens = q.size(1), width = q.size(2);
  return {.q = q,
          .k = inputs[1],
          .v = inputs[2],
          .S0 = S0.defined() ? S0 : at::zeros({groups, width, width}, q.options()),
          .z0 = z0.defined() ? z0 : at::zeros({groups, width}, q.options()),
          .groups = groups,
          .tokens = tokens,
          .width = width};
}

// An empty y and the carry as it came; copies, since an output is never the caller's own tensor.
inline Tensors carry_alone(const Inputs& in) { return {at::empty_like(in.q), in.S0.clone(), in.z0.clone()}; }

}  // namespace fractus::linear_attention
