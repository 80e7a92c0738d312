// Comparisons, at a generic point. A field has no order; what a program asks is whether it is at a cut, and a random
// point is at none (oracle/field.h takes the same side). Each is recorded, with its place.
#include <ATen/ExpandUtils.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <limits>

#include "field/elementwise.h"
#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

enum class Order { eq, ne, lt, le, gt, ge };

bool holds(Order order, double a, double b) {
  switch (order) {
    case Order::eq: return a == b;
    case Order::ne: return a != b;
    case Order::lt: return a < b;
    case Order::le: return a <= b;
    case Order::gt: return a > b;
    case Order::ge: return a >= b;
  }
  return false;
}

const char* operation_of(Order order) {
  constexpr const char* names[] = {"aten::eq", "aten::ne", "aten::lt", "aten::le", "aten::gt", "aten::ge"};
  return names[static_cast<int>(order)];
}

// Truth values as the result: of whatever type `out` has, 0 and 1.
void assign_truth(const at::Tensor& out, const at::Tensor& truth) {
  resize_to(out, truth.sizes());
  slots(out).copy_(truth);  // 0 and 1 are themselves in every field
}

std::string text_of(const at::Scalar& value) {
  if (value.isIntegral(/*includeBool=*/true)) return std::to_string(value.toLong());
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value.toDouble());
  return text;
}

// Of 0 the answer is that of the rationals. Of any other residue: it is no constant, so it equals none, and it lies
// above every cut.
at::Tensor& compare_with_number(Order order, const at::Tensor& self, const at::Scalar& other, at::Tensor& out) {
  const char* const name = operation_of(order);
  if (other.isComplex()) refuse(name, "a complex constant");
  remark("comparison", name, "with " + text_of(other));
  const double c = other.toDouble();
  const at::Tensor residues = operand(self, at::kLong, name);
  at::Tensor truth;
  if (!std::isfinite(c)) {
    truth = at::full(residues.sizes(), holds(order, 1, c), at::TensorOptions().dtype(at::kBool));
  } else if (order == Order::eq || order == Order::ne) {
    const auto value = static_cast<std::int64_t>(constant(other, name));
    truth = order == Order::eq ? residues.eq(value) : residues.ne(value);
  } else {
    const bool at_zero = holds(order, 0, c), elsewhere = order == Order::gt || order == Order::ge;
    const at::Tensor zero = residues.eq(0);
    truth = at_zero == elsewhere ? at::full_like(zero, elsewhere) : elsewhere ? zero.logical_not() : zero;
  }
  assign_truth(out, truth);
  return out;
}

Order turned(Order order) {
  switch (order) {
    case Order::lt: return Order::gt;
    case Order::le: return Order::ge;
    case Order::gt: return Order::lt;
    case Order::ge: return Order::le;
    default: return order;
  }
}

// A number of the CPU, exactly as `constant` reads it from a tensor.
at::Scalar number_of(const at::Tensor& x) { return x.item(); }

// Of two tensors: equal residues are equal, else the left one is the larger.
at::Tensor& compare(Order order, const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  if (!on_device(other) && other.dim() == 0) return compare_with_number(order, self, number_of(other), out);
  if (!on_device(self) && self.dim() == 0) return compare_with_number(turned(order), other, number_of(self), out);
  const char* const name = operation_of(order);
  remark("comparison", name, "of two tensors");
  const at::Tensor a = operand(self, at::kLong, name), b = operand(other, at::kLong, name);
  switch (order) {
    case Order::eq:
    case Order::le: assign_truth(out, a.eq(b)); break;
    case Order::ne:
    case Order::gt: assign_truth(out, a.ne(b)); break;
    case Order::lt:
    case Order::ge: assign_truth(out, at::full_like(a.eq(b), order == Order::ge)); break;
  }
  return out;
}

template <Order order>
at::Tensor& compare_tensor(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  return compare(order, self, other, out);
}
template <Order order>
at::Tensor& compare_scalar(const at::Tensor& self, const at::Scalar& other, at::Tensor& out) {
  return compare_with_number(order, self, other, out);
}

at::Tensor truth_of(const at::Tensor& x, const char* name) {
  if (!is_field(x)) return operand(x, at::kLong, name).ne(0);
  remark("comparison", name, "with 0");
  return slots(x).ne(0);
}

at::Tensor& logical_not(const at::Tensor& self, at::Tensor& out) {
  assign_truth(out, truth_of(self, "aten::logical_not").logical_not());
  return out;
}
at::Tensor& logical_and(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  assign_truth(out, truth_of(self, "aten::logical_and").logical_and(truth_of(other, "aten::logical_and")));
  return out;
}
at::Tensor& logical_or(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  assign_truth(out, truth_of(self, "aten::logical_or").logical_or(truth_of(other, "aten::logical_or")));
  return out;
}
at::Tensor& logical_xor(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  assign_truth(out, truth_of(self, "aten::logical_xor").logical_xor(truth_of(other, "aten::logical_xor")));
  return out;
}

at::Tensor isnan(const at::Tensor& self) {
  return wrapped(at::zeros(self.sizes(), at::TensorOptions().dtype(at::kBool)), at::kBool);
}

// A generic point lies above 0.
at::Tensor& magnitude(const at::Tensor& self, at::Tensor& out) {
  remark("comparison", "aten::abs", "with 0");
  assign(out, operand(self, slot_type(out.scalar_type()), "aten::abs"));
  return out;
}

// The derivative of abs, and no sign that a program asked for: that one would be 1, whatever it was meant for.
at::Tensor& sgn(const at::Tensor& self, at::Tensor& out) {
  const auto node = torch::autograd::get_current_node();
  if (!node || node->name().find("AbsBackward") == std::string::npos) refuse("aten::sgn", "a sign");
  remark("comparison", "aten::sgn", "with 0");
  assign_truth(out, slots(self).ne(0));
  return out;
}

template <Order order>
void define_order(torch::Library& library, const char* tensor_name, const char* scalar_name) {
  define(library, tensor_name, compare_tensor<order>);
  define(library, scalar_name, compare_scalar<order>);
}

}  // namespace
}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  define_order<Order::eq>(library, "eq.Tensor_out", "eq.Scalar_out");
  define_order<Order::ne>(library, "ne.Tensor_out", "ne.Scalar_out");
  define_order<Order::lt>(library, "lt.Tensor_out", "lt.Scalar_out");
  define_order<Order::le>(library, "le.Tensor_out", "le.Scalar_out");
  define_order<Order::gt>(library, "gt.Tensor_out", "gt.Scalar_out");
  define_order<Order::ge>(library, "ge.Tensor_out", "ge.Scalar_out");
  define(library, "logical_not.out", logical_not);
  define(library, "logical_and.out", logical_and);
  define(library, "logical_or.out", logical_or);
  define(library, "logical_xor.out", logical_xor);
  define(library, "isnan", isnan);
  define(library, "abs.out", magnitude);
  define(library, "sgn.out", sgn);
}
