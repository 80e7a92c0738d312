// Sums, products, quotients and powers, element by element.
//
// torch's own structured kernels make the tensor for the result, promote types and broadcast; what is left here is the
// out= form of each operation, which the functional and the in-place forms end in.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>

#include "field/elementwise.h"
#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

std::vector<std::int64_t> common_sizes(at::TensorList tensors) {
  std::vector<std::int64_t> sizes = tensors.front().sizes().vec();
  for (const at::Tensor& x : tensors.slice(1)) sizes = at::infer_size(sizes, x.sizes());
  return sizes;
}

at::ScalarType common_type(at::TensorList tensors) { return at::native::result_type(tensors); }

// out = f(in...) where `f` is a function template of Prime<bits>.
template <std::size_t n, class F>
at::Tensor& compute(const char* name, at::Tensor& out, const std::array<at::Tensor, n>& in, const F& f) {
  TORCH_CHECK(is_field(out), name, ": wanted an out= of floats of the device 'field', got ", name_of(out.scalar_type()),
              " of '", out.device(), "'");
  note_cast(common_type(in), out.scalar_type(), name);
  resize_to(out, common_sizes(in));
  at::assert_no_internal_overlap(out);
  for (const at::Tensor& x : in)
    if (on_device(x)) at::assert_no_partial_overlap(out, x);
  const at::Tensor to = slots(out);
  std::array<at::Tensor, n> from;
  for (std::size_t k = 0; k < n; ++k) from[k] = operand(in[k], to.scalar_type(), name);
  with_slots(to.scalar_type(), [&]<class Field, class Slot>(Field, Slot) {
    for_each_element<Slot, Slot>(to, from, [&](auto... x) { return f(Field(), x...); });
  });
  return out;
}

// The inverses of a divisor, as a tensor that may stand in its place.
at::Tensor inverse_of(const at::Tensor& divisor, at::ScalarType type, const char* name) {
  at::Tensor residues = operand(divisor, slot_type(type), name).clone(at::MemoryFormat::Contiguous);
  if (!invert(residues)) pole(name);
  return wrapped(residues, type);
}

at::Tensor& add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  const std::uint64_t factor = constant(alpha, "aten::add");
  if (factor == 1)
    return compute<2>("aten::add", out, {self, other}, []<class F>(F, auto a, auto b) { return F::add(a, b); });
  return compute<2>("aten::add", out, {self, other},
                    [=]<class F>(F, auto a, auto b) { return F::add(a, F::multiply(factor, b)); });
}

at::Tensor& subtract(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  const std::uint64_t factor = constant(alpha, "aten::sub");
  if (factor == 1)
    return compute<2>("aten::sub", out, {self, other}, []<class F>(F, auto a, auto b) { return F::subtract(a, b); });
  return compute<2>("aten::sub", out, {self, other},
                    [=]<class F>(F, auto a, auto b) { return F::subtract(a, F::multiply(factor, b)); });
}

at::Tensor subtract_from(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
}

at::Tensor& multiply(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return compute<2>("aten::mul", out, {self, other}, []<class F>(F, auto a, auto b) { return F::multiply(a, b); });
}

at::Tensor& divide(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  note_cast(common_type({self, other}), out.scalar_type(), "aten::div");
  return compute<2>("aten::div", out, {self, inverse_of(other, out.scalar_type(), "aten::div")},
                    []<class F>(F, auto a, auto b) { return F::multiply(a, b); });
}

at::Tensor& divide_rounding(const at::Tensor& self, const at::Tensor& other, std::optional<std::string_view> mode,
                            at::Tensor& out) {
  if (mode) refuse("aten::div", "a quotient that is rounded");
  return divide(self, other, out);
}

at::Tensor& negate(const at::Tensor& self, at::Tensor& out) {
  return compute<1>("aten::neg", out, {self}, []<class F>(F, auto a) { return F::negate(a); });
}

at::Tensor& reciprocal(const at::Tensor& self, at::Tensor& out) {
  return compute<1>("aten::reciprocal", out, {inverse_of(self, out.scalar_type(), "aten::reciprocal")},
                    [](auto, auto a) { return a; });
}

at::Tensor& addcmul(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& value,
                    at::Tensor& out) {
  const std::uint64_t factor = constant(value, "aten::addcmul");
  return compute<3>("aten::addcmul", out, {self, a, b}, [=]<class F>(F, auto x, auto y, auto z) {
    return F::add(x, F::multiply(factor, F::multiply(y, z)));
  });
}

at::Tensor& addcdiv(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& value,
                    at::Tensor& out) {
  return addcmul(self, a, inverse_of(b, out.scalar_type(), "aten::addcdiv"), value, out);
}

template <class F>
std::uint64_t between(std::uint64_t start, std::uint64_t end, std::uint64_t weight) {
  return F::add(start, F::multiply(weight, F::subtract(end, start)));
}

at::Tensor& lerp_scalar(const at::Tensor& self, const at::Tensor& end, const at::Scalar& weight, at::Tensor& out) {
  const std::uint64_t factor = constant(weight, "aten::lerp");
  return compute<2>("aten::lerp", out, {self, end},
                    [=]<class F>(F, auto a, auto b) { return between<F>(a, b, factor); });
}

at::Tensor& lerp_tensor(const at::Tensor& self, const at::Tensor& end, const at::Tensor& weight, at::Tensor& out) {
  return compute<3>("aten::lerp", out, {self, end, weight},
                    []<class F>(F, auto a, auto b, auto c) { return between<F>(a, b, c); });
}

// x^n for n of any sign. 0^0 is 1, as in torch.
at::Tensor& pow_by_number(const at::Tensor& self, const at::Scalar& exponent, at::Tensor& out) {
  std::int64_t n = 0;
  if (exponent.isIntegral(/*includeBool=*/true)) {
    n = exponent.toLong();
  } else {
    const double x = exponent.isComplex() ? 0.5 : exponent.toDouble();
    if (!(std::abs(x) < 0x1p53 && x == std::trunc(x))) refuse("aten::pow", "an exponent that is no whole number");
    n = static_cast<std::int64_t>(x);
  }
  const at::Tensor base = n >= 0 ? self : inverse_of(self, out.scalar_type(), "aten::pow");
  const auto magnitude = n >= 0 ? static_cast<std::uint64_t>(n) : -static_cast<std::uint64_t>(n);
  return compute<1>("aten::pow", out, {base}, [=]<class F>(F, auto a) { return F::power(a, magnitude); });
}

// Exponents in a tensor are whole numbers or the run ends; those of a field would be known modulo p alone, where they
// count modulo p-1.
at::Tensor& pow_by_tensor(const at::Tensor& self, const at::Tensor& exponent, at::Tensor& out) {
  if (is_field(exponent)) refuse("aten::pow", "an exponent that is an element of the field");
  if (!on_device(exponent)) return pow_by_number(self, exponent.item(), out);
  const at::Tensor n = slots(exponent).to(at::kLong);
  at::Tensor base = operand(self, slot_type(out.scalar_type()), "aten::pow");
  if (n.lt(0).any().item<bool>()) {
    const auto sizes = at::infer_size(base.sizes(), n.sizes());
    const at::Tensor negative = n.lt(0).expand(sizes);
    at::Tensor inverted = at::where(negative, base, at::ones({}, base.options())).contiguous();
    if (!invert(inverted)) pole("aten::pow");
    base = at::where(negative, inverted, base);
  }
  // 2^63 itself has no magnitude in int64; as an exponent it is one of a size that no program means.
  const at::Tensor magnitude = n.abs();
  resize_to(out, at::infer_size(base.sizes(), n.sizes()));
  with_slots(base.scalar_type(), [&]<class F, class Slot>(F, Slot) {
    at::Tensor result = at::empty(out.sizes(), at::TensorOptions().dtype(at::kLong));
    for_each_element<std::int64_t, std::int64_t, 2>(result, {base.to(at::kLong), magnitude},
                                                    [](auto a, auto e) { return F::power(a, e); });
    assign(out, result);
  });
  return out;
}

at::Tensor& pow_of_number(const at::Scalar& base, const at::Tensor& exponent, at::Tensor& out) {
  return pow_by_tensor(
      at::scalar_tensor(base, at::TensorOptions().dtype(base.isFloatingPoint() ? at::kDouble : at::kLong)), exponent,
      out);
}

at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dims, const std::optional<at::Scalar>& correction,
               bool keepdim) {
  const at::Tensor mean = at::mean(self, dims, /*keepdim=*/true);
  const at::Tensor away = self - mean;
  const at::Tensor sum = (away * away).sum(dims, keepdim);
  const double count = static_cast<double>(self.numel()) / static_cast<double>(std::max<std::int64_t>(mean.numel(), 1));
  return sum / (count - correction.value_or(1).toDouble());
}

}  // namespace

// Montgomery's trick (Math. Comp. 48, 1987): the inverse of the product of a block, and from it those of its factors,
// three products an element.
bool invert(const at::Tensor& residues) {
  TORCH_INTERNAL_ASSERT(residues.is_contiguous());
  return with_slots(residues.scalar_type(), [&]<class F, class Slot>(F, Slot) {
    constexpr std::int64_t block = 1024;
    std::array<std::uint64_t, block> before;
    Slot* const x = residues.mutable_data_ptr<Slot>();
    for (std::int64_t first = 0; first < residues.numel(); first += block) {
      const std::int64_t count = std::min(block, residues.numel() - first);
      std::uint64_t product = 1;
      for (std::int64_t i = 0; i < count; ++i) {
        before[i] = product;
        product = F::multiply(product, static_cast<std::uint64_t>(x[first + i]));
      }
      if (product == 0) return false;  // a field has no zero divisors
      std::uint64_t inverse = F::inverse(product);
      for (std::int64_t i = count; i-- > 0;) {
        const auto own = static_cast<std::uint64_t>(x[first + i]);
        x[first + i] = static_cast<Slot>(F::multiply(inverse, before[i]));
        inverse = F::multiply(inverse, own);
      }
    }
    return true;
  });
}

}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  define(library, "add.out", add);
  define(library, "sub.out", subtract);
  define(library, "rsub.Tensor", subtract_from);
  define(library, "mul.out", multiply);
  define(library, "div.out", divide);
  define(library, "div.out_mode", divide_rounding);
  define(library, "neg.out", negate);
  define(library, "reciprocal.out", reciprocal);
  define(library, "addcmul.out", addcmul);
  define(library, "addcdiv.out", addcdiv);
  define(library, "lerp.Scalar_out", lerp_scalar);
  define(library, "lerp.Tensor_out", lerp_tensor);
  define(library, "pow.Tensor_Scalar_out", pow_by_number);
  define(library, "pow.Tensor_Tensor_out", pow_by_tensor);
  define(library, "pow.Scalar_out", pow_of_number);
  define(library, "var.correction", var);
}
