// The memory of the device. A float32 tensor has 4-byte slots and a float64 tensor 8-byte slots, as on any device, and
// each slot holds a residue; a tensor of whole numbers or truth values holds those. Views, strides and indexing are
// therefore torch's own.
//
// What a tensor shows as its data_ptr is not its address: code that reads memory by itself, instead of asking torch's
// operations, ends by SIGSEGV and not with a verdict on bit patterns.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

#include <cstdint>

#include "field/prime.h"

namespace fractus::field {

// The field of the process.
int bits();
void use(int bits);  // 31 or 61, else throws c10::Error
inline std::uint64_t modulus() { return (std::uint64_t{1} << bits()) - 1; }

inline bool on_device(const at::Tensor& x) { return x.defined() && x.device().is_privateuseone(); }
inline bool is_field(const at::Tensor& x) { return on_device(x) && at::isFloatingType(x.scalar_type()); }

// The type that a tensor of the device gets where `asked` is asked for: float32 and float64 stay at 31 bits, and a
// narrower float cannot hold a residue, so it becomes float32; at 61 bits every float is float64. Others stay.
at::ScalarType field_type(at::ScalarType asked);
// By how much a float type narrows: greater is wider. 0: no float.
int width_of(at::ScalarType type);
const char* name_of(at::ScalarType type);  // "float32"

// The type of the integers in the slots: int32 or int64 of a float, the type itself of others.
at::ScalarType slot_type(at::ScalarType type);

// A tensor of the CPU over the same memory, in the same shape and strides, that keeps it alive. Refused where the
// memory was written as another type or over another field: reinterpreted bits are no algebra.
at::Tensor slots(const at::Tensor& x);

// The inverse of `slots`, over the memory of `cpu`, without a copy.
at::Tensor wrapped(const at::Tensor& cpu, at::ScalarType type);

// Uninitialised memory: of a float, residues that differ from one call to the next, so that what depends on them does
// not pass for a value.
at::Tensor uninitialised(at::IntArrayRef sizes, at::ScalarType type,
                         std::optional<at::MemoryFormat> format = std::nullopt);
at::Tensor uninitialised_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

// Makes the storage at least so large, of the same kind, with its content kept.
void grow(const c10::Storage& storage, std::size_t bytes);

// Gives `out` the shape, as every out= of torch does. No change where it has it.
void resize_to(const at::Tensor& out, at::IntArrayRef sizes);

// f(Prime<bits>, Slot) for the current field and the slots of the type, Slot being std::int32_t or std::int64_t.
template <class F>
decltype(auto) with_slots(at::ScalarType slot, F&& f) {
  if (bits() == 61) return f(Prime<61>{}, std::int64_t{});
  if (slot == at::kInt) return f(Prime<31>{}, std::int32_t{});
  return f(Prime<31>{}, std::int64_t{});
}

}  // namespace fractus::field
