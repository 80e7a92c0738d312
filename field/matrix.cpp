// The matrix products of torch, each by the one of field/product.h.
#include <ATen/ExpandUtils.h>

#include "field/product.h"
#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

// The product of two or three dimensions, as a tensor of the device in the wider of the two types.
at::Tensor product_of(const at::Tensor& a, const at::Tensor& b, const char* name) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": wanted matrices of one type, got ", name_of(a.scalar_type()),
              " and ", name_of(b.scalar_type()));
  TORCH_CHECK(is_field(a) && is_field(b), name, ": wanted floats of the device 'field'");
  const bool batched = a.dim() == 3;
  TORCH_CHECK(a.dim() == b.dim() && (batched || a.dim() == 2) && a.size(-1) == b.size(-2) &&
                  (!batched || a.size(0) == b.size(0)),
              name, ": no product of the shapes ", a.sizes(), " and ", b.sizes());
  const at::Tensor left = slots(a), right = slots(b);
  const at::Tensor result = product(batched ? left : left.unsqueeze(0), batched ? right : right.unsqueeze(0));
  return wrapped(batched ? result : result.squeeze(0), a.scalar_type());
}

at::Tensor& give(const at::Tensor& result, at::Tensor& out, const char* name) {
  note_cast(result.scalar_type(), out.scalar_type(), name);
  TORCH_CHECK(is_field(out), name, ": wanted an out= of floats of the device 'field', got ",
              name_of(out.scalar_type()));
  assign(out, slots(result));
  return out;
}

// beta self + alpha product. beta = 0 means that self is not read, as in torch.
at::Tensor& combine(const at::Tensor& self, const at::Tensor& product, const at::Scalar& beta, const at::Scalar& alpha,
                    at::Tensor& out, const char* name) {
  at::Tensor result = constant(alpha, name) == 1 ? product : at::mul(product, alpha);
  if (constant(beta, name) != 0) {
    at::infer_size(self.sizes(), product.sizes());
    result = result + (constant(beta, name) == 1 ? self : at::mul(self, beta));
  }
  TORCH_CHECK(result.sizes() == product.sizes(), name, ": a summand of shape ", self.sizes(),
              " is larger than the product's ", product.sizes());
  return give(result, out, name);
}

at::Tensor& mm(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return give(product_of(a, b, "aten::mm"), out, "aten::mm");
}
at::Tensor& bmm(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return give(product_of(a, b, "aten::bmm"), out, "aten::bmm");
}
at::Tensor mm_new(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "mm: wanted two matrices, got the shapes ", a.sizes(), " and ", b.sizes());
  return product_of(a, b, "aten::mm");
}
at::Tensor bmm_new(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 3 && b.dim() == 3, "bmm: wanted two batches of matrices, got the shapes ", a.sizes(), " and ",
              b.sizes());
  return product_of(a, b, "aten::bmm");
}

at::Tensor& addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                  const at::Scalar& alpha, at::Tensor& out) {
  return combine(self, product_of(a, b, "aten::addmm"), beta, alpha, out, "aten::addmm");
}
at::Tensor& baddbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha, at::Tensor& out) {
  return combine(self, product_of(a, b, "aten::baddbmm"), beta, alpha, out, "aten::baddbmm");
}
at::Tensor& addmv(const at::Tensor& self, const at::Tensor& a, const at::Tensor& x, const at::Scalar& beta,
                  const at::Scalar& alpha, at::Tensor& out) {
  return combine(self, product_of(a, x.unsqueeze(1), "aten::addmv").squeeze(1), beta, alpha, out, "aten::addmv");
}

// The sum over the batch is part of the contraction.
at::Tensor& addbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                   const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1),
              "aten::addbmm: no product of the shapes ", a.sizes(), " and ", b.sizes());
  const std::int64_t depth = a.size(0) * a.size(2);
  const at::Tensor flat_a = a.transpose(0, 1).reshape({a.size(1), depth}), flat_b = b.reshape({depth, b.size(2)});
  return combine(self, product_of(flat_a, flat_b, "aten::addbmm"), beta, alpha, out, "aten::addbmm");
}
at::Tensor addbmm_new(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                      const at::Scalar& alpha) {
  at::Tensor out = uninitialised({0}, self.scalar_type());
  return addbmm(self, a, b, beta, alpha, out);
}
at::Tensor& addbmm_in_place(at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                            const at::Scalar& alpha) {
  return addbmm(self, a, b, beta, alpha, self);
}

at::Tensor dot(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel(),
              "dot: wanted two vectors of one length, got the shapes ", a.sizes(), " and ", b.sizes());
  return product_of(a.unsqueeze(0), b.unsqueeze(1), "aten::dot").squeeze();
}

}  // namespace
}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  define(library, "mm", mm_new);
  define(library, "mm.out", mm);
  define(library, "bmm", bmm_new);
  define(library, "bmm.out", bmm);
  define(library, "addmm.out", addmm);
  define(library, "baddbmm.out", baddbmm);
  define(library, "addmv.out", addmv);
  define(library, "addbmm.out", addbmm);
  define(library, "addbmm", addbmm_new);
  define(library, "addbmm_", addbmm_in_place);
  define(library, "dot", dot);
  define(library, "vdot", dot);
}
