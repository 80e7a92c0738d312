// The allocators of the device, and tensors of the CPU over its memory.
#include "field/slots.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <string>

#include "field/record.h"

namespace fractus::field {
namespace {

std::atomic<int> current_bits{31};

// What memory was allocated for.
enum Kind : std::uintptr_t { whole = 0, float_31 = 1, double_31 = 2, double_61 = 3 };

// Shown addresses lie 2^55 above the real ones, which no process maps: without 57-bit addresses such a pointer is not
// canonical, and with them Linux maps nothing so high that was not asked for by address. Two bits below tell the kind.
constexpr std::uintptr_t above = std::uintptr_t{1} << 55;
constexpr int kind_bit = 53;
constexpr std::uintptr_t address_mask = (std::uintptr_t{1} << kind_bit) - 1;

void* shown(const void* real, Kind kind) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(real) + above + (kind << kind_bit));
}
void* real_address(const void* shown) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(shown) & address_mask);
}
Kind kind_at(const void* shown) { return static_cast<Kind>(reinterpret_cast<std::uintptr_t>(shown) >> kind_bit & 3); }

Kind kind_of(at::ScalarType type) {
  if (!at::isFloatingType(type)) return whole;
  if (bits() == 61) return double_61;
  return type == at::kFloat ? float_31 : double_31;
}

const char* text_of(Kind kind) {
  switch (kind) {
    case whole: return "whole numbers";
    case float_31: return "float32 over GF(2^31-1)";
    case double_31: return "float64 over GF(2^31-1)";
    case double_61: return "float64 over GF(2^61-1)";
  }
  return "";
}

// Any residues will do that no program can foresee: those of a counter, mixed (Knuth's multiplicative hash).
void fill_uninitialised(void* real, std::size_t bytes, Kind kind) {
  static std::atomic<std::uint64_t> counter{0};
  if (kind == whole) return;
  const std::uint64_t mixed = (counter.fetch_add(1) + 1) * 0x9e3779b97f4a7c15u;
  if (kind == float_31) {
    std::fill_n(static_cast<std::uint32_t*>(real), bytes / 4, static_cast<std::uint32_t>(mixed >> 34));
  } else {
    const int width = kind == double_31 ? 30 : 60;
    std::fill_n(static_cast<std::uint64_t*>(real), bytes / 8, mixed >> (64 - width));
  }
}

struct Allocator final : c10::Allocator {
  explicit Allocator(Kind which) : kind(which) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(std::max<std::size_t>(bytes, 8));
    void* const real = memory.get();
    fill_uninitialised(real, bytes, kind);
    const c10::DeleterFnPtr deleter = memory.get_deleter();
    return {shown(real, kind), memory.release_context(), deleter, c10::Device(c10::DeviceType::PrivateUse1, 0)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(real_address(to), real_address(from), bytes);
  }

  Kind kind;
};

Allocator& allocator_of(Kind kind) {
  static Allocator allocators[] = {Allocator(whole), Allocator(float_31), Allocator(double_31), Allocator(double_61)};
  return allocators[kind];
}

const bool registered = [] {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator_of(whole));
  return true;
}();

// Memory that a storage of one device lends to one of the other.
c10::DataPtr lent(void* data, const c10::Storage& owner, c10::Device device) {
  return {data, new c10::Storage(owner), [](void* context) { delete static_cast<c10::Storage*>(context); }, device};
}

constexpr c10::DispatchKeySet device_keys(c10::DispatchKey::PrivateUse1);

}  // namespace

int bits() { return current_bits; }

void use(int wanted) {
  TORCH_CHECK(wanted == 31 || wanted == 61, "field.use: wanted 31 or 61, for GF(2^31-1) or GF(2^61-1), got ", wanted);
  current_bits = wanted;
}

int width_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 4;
    case at::kFloat: return 3;
    case at::kHalf:
    case at::kBFloat16: return 2;
    default: return at::isFloatingType(type) ? 1 : 0;
  }
}

const char* name_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return "float64";
    case at::kFloat: return "float32";
    case at::kHalf: return "float16";
    case at::kBFloat16: return "bfloat16";
    case at::kBool: return "bool";
    default: return c10::toString(type);
  }
}

at::ScalarType field_type(at::ScalarType asked) {
  if (at::isComplexType(asked)) refuse("complex", "no field holds both the residues and a square root of -1");
  if (!at::isFloatingType(asked)) return asked;
  return bits() == 61 || asked == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType slot_type(at::ScalarType type) {
  return type == at::kFloat ? at::kInt : type == at::kDouble ? at::kLong : type;
}

at::Tensor slots(const at::Tensor& x) {
  TORCH_CHECK(on_device(x), "wanted a tensor of the device 'field', got one of '", x.device(), "': use x.to('field')");
  const c10::Storage& storage = x.storage();
  const void* const address = storage.data();
  if (address != nullptr && kind_at(address) != kind_of(x.scalar_type()))
    refuse("memory", std::string("it holds ") + text_of(kind_at(address)) + ", and is read as " +
                         text_of(kind_of(x.scalar_type())));
  c10::Storage seen(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    lent(real_address(address), storage, c10::Device(c10::DeviceType::CPU)));
  at::Tensor result =
      at::detail::make_tensor<c10::TensorImpl>(std::move(seen), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                               c10::scalarTypeToTypeMeta(slot_type(x.scalar_type())));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return result;
}

at::Tensor wrapped(const at::Tensor& cpu, at::ScalarType type) {
  TORCH_INTERNAL_ASSERT(cpu.is_cpu() && cpu.scalar_type() == slot_type(type) && field_type(type) == type);
  const Kind kind = kind_of(type);
  const c10::Storage& storage = cpu.storage();
  c10::Storage seen(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    lent(shown(storage.data(), kind), storage, c10::Device(c10::DeviceType::PrivateUse1, 0)),
                    &allocator_of(kind), /*resizable=*/true);
  at::Tensor result =
      at::detail::make_tensor<c10::TensorImpl>(std::move(seen), device_keys, c10::scalarTypeToTypeMeta(type));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  return result;
}

at::Tensor uninitialised(at::IntArrayRef sizes, at::ScalarType type, std::optional<at::MemoryFormat> format) {
  const at::ScalarType held = field_type(type);
  return at::Tensor(at::detail::empty_generic(sizes, &allocator_of(kind_of(held)), device_keys, held, format));
}

at::Tensor uninitialised_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  const at::ScalarType held = field_type(type);
  return at::Tensor(at::detail::empty_strided_generic(sizes, strides, &allocator_of(kind_of(held)), device_keys, held));
}

void grow(const c10::Storage& storage, std::size_t bytes) {
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  const void* const old = storage.data();
  c10::DataPtr memory = allocator_of(old == nullptr ? whole : kind_at(old)).allocate(bytes);
  if (old != nullptr)
    std::memcpy(real_address(memory.get()), real_address(old),
                std::min(bytes, static_cast<std::size_t>(storage.nbytes())));
  impl->set_data_ptr_noswap(std::move(memory));
  impl->set_nbytes(bytes);
}

void resize_to(const at::Tensor& out, at::IntArrayRef sizes) {
  if (out.sizes() != sizes) out.resize_(sizes);
}

}  // namespace fractus::field
