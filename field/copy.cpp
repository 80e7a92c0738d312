// Copies, casts, constants as tensors, and values that leave the device.
#include <ATen/ExpandUtils.h>

#include "field/constant.h"
#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

bool is_float(at::ScalarType type) { return at::isFloatingType(type); }

// Residues of the floats of a tensor of the CPU: each is a constant of the program.
template <class T>
at::Tensor residues_of_constants(const at::Tensor& cpu, at::ScalarType slot) {
  const at::Tensor source = cpu.contiguous();
  at::Tensor result = at::empty(source.sizes(), at::TensorOptions().dtype(at::kLong));
  const T* const from = source.const_data_ptr<T>();
  std::int64_t* const to = result.mutable_data_ptr<std::int64_t>();
  const int width = bits();
  for (std::int64_t i = 0; i < source.numel(); ++i) {
    if (!std::isfinite(from[i])) refuse("aten::copy", "the constant " + std::to_string(from[i]));
    to[i] = static_cast<std::int64_t>(residue(read(from[i]), width));
  }
  return result.to(slot);
}

at::Tensor residues_of(const at::Tensor& x, at::ScalarType slot) {
  if (on_device(x)) return operand(x, slot, "aten::copy");
  if (x.scalar_type() == at::kDouble) return residues_of_constants<double>(x, slot);
  if (is_float(x.scalar_type())) return residues_of_constants<float>(x.to(at::kFloat), slot);
  if (at::isComplexType(x.scalar_type())) refuse("aten::copy", "complex numbers");
  return x.to(at::kLong).remainder(static_cast<std::int64_t>(modulus())).to(slot);
}

[[noreturn]] void refuse_to_leave(const at::Tensor& x) {
  refuse("aten::_to_copy", std::string("residues of ") + name_of(x.scalar_type()) +
                               " are no floats on another device; residues(x) of the device's library shows them");
}

// A float of the device as truth values or, which no field has, as whole numbers.
at::Tensor whole_numbers_of(const at::Tensor& x, at::ScalarType type) {
  if (type != at::kBool)
    refuse("aten::_to_copy", std::string("a cast from ") + name_of(x.scalar_type()) + " to whole numbers");
  remark("comparison", "aten::_to_copy", "with 0");
  return slots(x).ne(0);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool) {
  if (!on_device(target)) {
    TORCH_CHECK(target.is_cpu(), "copy_: wanted a tensor of the CPU or of 'field', got one of '", target.device(), "'");
    if (is_field(self)) refuse_to_leave(self);
    at::Tensor(target).copy_(slots(self));
  } else if (is_field(target)) {
    note_cast(self.scalar_type(), target.scalar_type(), "aten::copy");
    slots(target).copy_(residues_of(self, slot_type(target.scalar_type())));
  } else if (is_field(self)) {
    slots(target).copy_(whole_numbers_of(self, target.scalar_type()));
  } else {
    slots(target).copy_(on_device(self) ? slots(self) : self);
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  resize_to(target, self.sizes());
  return copy_from(self, target, false);
}

at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                   std::optional<at::Device> device, std::optional<bool>, bool,
                   std::optional<at::MemoryFormat> format) {
  const at::ScalarType asked = type.value_or(self.scalar_type());
  if (device && !device->is_privateuseone()) {
    if (is_field(self)) refuse_to_leave(self);
    return slots(self).to(at::TensorOptions().dtype(asked).device(*device), false, /*copy=*/true);
  }
  const at::ScalarType held = field_type(asked);
  if (!on_device(self)) {  // torch asks the device that it goes to
    note_cast(self.scalar_type(), asked, "aten::_to_copy");
    const at::Tensor cpu = is_float(held) ? residues_of(self, slot_type(held)) : self.to(held);
    return wrapped(cpu.clone(format.value_or(at::MemoryFormat::Preserve)), held);
  }
  if (is_field(self) && !is_float(held)) return wrapped(whole_numbers_of(self, held).contiguous(), held);
  if (!is_float(held)) return wrapped(slots(self).to(held, false, /*copy=*/true), held);
  note_cast(self.scalar_type(), asked, "aten::_to_copy");
  const auto kept = format.value_or(at::MemoryFormat::Preserve);
  return wrapped(operand(self, slot_type(held), "aten::_to_copy").clone(kept), held);
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  slots(self).fill_(static_cast<std::int64_t>(constant(value, "aten::fill")));
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_: wanted a value without dimensions, got one of shape ", value.sizes());
  slots(self).copy_(operand(value, slot_type(self.scalar_type()), "aten::fill"));
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  slots(self).zero_();
  return self;
}

// start + i step, exactly; how many there are is torch's own arithmetic.
at::Tensor& arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  const std::int64_t count = at::arange(start, end, step, at::TensorOptions().dtype(at::kDouble)).numel();
  const at::Tensor first = at::empty({count}, at::TensorOptions().dtype(slot_type(out.scalar_type())));
  with_slots(first.scalar_type(), [&]<class F, class Slot>(F, Slot) {
    const std::uint64_t each = constant(step, "aten::arange");
    std::uint64_t value = constant(start, "aten::arange");
    Slot* const to = first.mutable_data_ptr<Slot>();
    for (std::int64_t i = 0; i < count; ++i, value = F::add(value, each)) to[i] = static_cast<Slot>(value);
  });
  assign(out, first);
  return out;
}

at::Scalar local_scalar(const at::Tensor& self) {
  if (is_field(self)) refuse("aten::item", "an element of the field as a number of the program");
  remark("branch", "aten::item", name_of(self.scalar_type()));
  return slots(self).item();
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  remark("branch", "aten::equal", "");
  TORCH_CHECK(on_device(self) && on_device(other), "equal: wanted both tensors on the device 'field'");
  if (self.sizes() != other.sizes() || is_field(self) != is_field(other)) return false;
  return at::equal(slots(self).to(at::kLong), slots(other).to(at::kLong));
}

}  // namespace
}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_to_copy", to_copy);
  define(library, "fill_.Scalar", fill_scalar);
  define(library, "fill_.Tensor", fill_tensor);
  library.impl("zero_", zero);
  define(library, "arange.start_out", arange);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("equal", equal);
}
