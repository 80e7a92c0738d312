// The backend `field` (PrivateUse1) as torch asks for one: guard, hooks, the making of tensors, views.
//
// Streams and events mean nothing here: every operation is done when it returns.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

constexpr auto device_type = c10::DeviceType::PrivateUse1;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return device_type; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {device_type, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream getNewStream(c10::Device, int) const override { return getStream(getDevice()); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(getDevice()); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return {device_type, 0}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    refuse("a generator of the device", "a random draw, which no definition can be held against", "non-deterministic");
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return getDefaultGenerator(index); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override { grow(storage, bytes); }
};

const bool registered = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::register_privateuse1_backend("field");
  return true;
}();

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// A tensor of a type that cannot be had is one of the nearest that can, and what is written to it is wider than the
// program believes.
void note_asked(at::ScalarType asked) {
  if (width_of(asked) != 0 && width_of(asked) < width_of(field_type(asked)))
    remark("cast", "aten::empty", std::string("to ") + name_of(asked));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided,
              "the device 'field' has dense tensors alone, and was asked for ", *layout);
  const at::ScalarType asked = type.value_or(c10::get_default_dtype_as_scalartype());
  note_asked(asked);
  return uninitialised(sizes, asked, format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  const at::ScalarType asked = type.value_or(c10::get_default_dtype_as_scalartype());
  note_asked(asked);
  return uninitialised_strided(sizes, strides, asked);
}

// torch's zero that takes no memory, as forward-mode derivatives make it: here one as any other.
at::Tensor zeros(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>) {
  return uninitialised(sizes, type.value_or(c10::get_default_dtype_as_scalartype())).zero_();
}

std::size_t bytes_of(const at::Tensor& x) {
  return at::detail::computeStorageNbytes(x.sizes(), x.strides(), x.element_size(),
                                          static_cast<std::size_t>(x.storage_offset()));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) impl->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  if (self.numel() != 0 && bytes_of(self) > self.storage().nbytes()) grow(self.storage(), bytes_of(self));
  return self;
}

at::Tensor& set_to(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes,
                   at::IntArrayRef strides) {
  TORCH_CHECK(source.device() == self.device(), "set_: wanted a storage of '", self.device(), "', got one of '",
              source.device(), "'");
  const c10::DimVector dense = strides.data() == nullptr ? c10::contiguous_strides(sizes) : c10::DimVector(strides);
  at::native::checkInBoundsForStorage(sizes, at::IntArrayRef(dense), offset, self.dtype(), source);
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, dense, offset);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const std::int64_t count = static_cast<std::int64_t>(source.nbytes() / self.element_size());
  return set_to(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_to(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_to(self, uninitialised({0}, self.scalar_type()).storage(), 0, {0}, {});
}

at::Tensor view_as_type(const at::Tensor& self, at::ScalarType type) {
  if (field_type(type) != self.scalar_type())
    refuse("aten::view", std::string("it reads the bits of ") + name_of(self.scalar_type()) + " as " + name_of(type));
  return at::native::alias(self);
}

}  // namespace
}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_efficientzerotensor", zeros);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage_storage_offset", set_to);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_nothing);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("unfold", at::native::unfold);
  library.impl("view.dtype", view_as_type);
}
