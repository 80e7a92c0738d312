#include "candidates/moe/experts.h"

namespace fractus::moe {

using at::Tensor;

Experts gathered(const Experts& of, const Tensor& index) {
  const auto own = [&](const Tensor& parameter) {
    return parameter.defined() ? parameter.index_select(0, index) : Tensor();
  };
  return {own(of.w1), own(of.w2),     own(of.U1),     own(of.V1), own(of.U2),
          own(of.V2), own(of.scale1), own(of.scale2), own(of.b1), own(of.b2)};
}

Tensor said(const Tensor& rows, const Experts& by) {
  const Tensor b1 = by.b1.unsqueeze(1), b2 = by.b2.unsqueeze(1);
  if (by.dense()) return at::baddbmm(b2, at::gelu(at::baddbmm(b1, rows, by.w1), "tanh"), by.w2);
  const Tensor inner = at::bmm(at::bmm(rows, by.V1), by.U1.mT()).mul(by.scale1).add_(b1);
  return at::bmm(at::bmm(at::gelu(inner, "tanh"), by.V2), by.U2.mT()).mul(by.scale2).add_(b2);
}

}  // namespace fractus::moe
