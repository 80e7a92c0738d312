// A shared library as somebody outside of this project builds it: linear_attention as operators of torch.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, const Optional& S0,
                                             const Optional& z0) {
  const Tensor S = S0 ? *S0 : at::zeros({q.size(0), q.size(2), q.size(2)}, q.options());
  const Tensor z = z0 ? *z0 : at::zeros({q.size(0), q.size(2)}, q.options());
  const Tensor w = at::tril(at::matmul(q, k.mT()));
  const Tensor den = w.sum(-1) + (q * z.unsqueeze(1)).sum(-1);
  const Tensor keep = den.abs() > 1e-10;
  const Tensor safe = at::where(keep, den + 1e-20, at::ones_like(den)).unsqueeze(-1);
  const Tensor y = (at::matmul(w, v) + at::matmul(q, S)) / safe;
  return {at::where(keep.unsqueeze(-1), y, at::zeros_like(y)), S + at::matmul(k.mT(), v), z + k.sum(1)};
}

// Its arguments have names of their own.
std::tuple<Tensor, Tensor, Tensor> renamed(const Tensor& a, const Tensor& b, const Tensor& c, const Optional& d,
                                           const Optional& e) {
  return attention(a, b, c, d, e);
}

std::tuple<Tensor, Tensor, Tensor> forgets_carry(const Tensor& q, const Tensor& k, const Tensor& v, const Optional&,
                                                 const Optional&) {
  return attention(q, k, v, {}, {});
}

Tensor one_output(const Tensor& q, const Tensor& k, const Tensor& v, const Optional& S0, const Optional& z0) {
  return std::get<0>(attention(q, k, v, S0, z0));
}

}  // namespace

TORCH_LIBRARY(fractus_test, library) {
  const char* const inputs = "(Tensor q, Tensor k, Tensor v, Tensor? S0=None, Tensor? z0=None)";
  const auto schema = [&](const char* name, const char* result = " -> (Tensor, Tensor, Tensor)") {
    return std::string(name) + inputs + result;
  };
  library.def(schema("attention").c_str(), attention);
  library.def("renamed(Tensor a, Tensor b, Tensor c, Tensor? d=None, Tensor? e=None) -> (Tensor, Tensor, Tensor)",
              renamed);
  library.def(schema("forgets_carry").c_str(), forgets_carry);
  library.def(schema("one_output", " -> Tensor").c_str(), one_output);
  library.def("needs_carry(Tensor q, Tensor k, Tensor v, Tensor S0, Tensor z0) -> Tensor");
}
