// Sums and products over dimensions. torch's own sums of int64 do the adding, of pieces so small that nothing
// overflows: a tensor has fewer than 2^32 elements, or it does not fit into memory.
#include <ATen/WrapDimUtils.h>

#include "field/elementwise.h"
#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

// x mod p of what a linear map of int64 gives for the residues: map(x) at once where residues are below 2^31, since
// 2^31 2^32 = 2^63; else by the pieces of x = high 2^30 + low, each below 2^31.
template <class Map>
at::Tensor linear(const at::Tensor& residues, Map&& map) {
  const at::Tensor wide = residues.to(at::kLong);
  if (bits() == 31) {
    at::Tensor sum = map(wide);
    for_each_element<std::int64_t, std::int64_t, 1>(
        sum, {sum}, [](std::uint64_t x) { return Prime<31>::reduced(Prime<31>::reduced(x)); });
    return sum;
  }
  const at::Tensor low = map(wide.bitwise_and((std::int64_t{1} << 30) - 1)), high = map(wide.bitwise_right_shift(30));
  at::Tensor sum = at::empty_like(low);
  for_each_element<std::int64_t, std::int64_t, 2>(sum, {low, high}, [](std::uint64_t a, std::uint64_t b) {
    using F = Prime<61>;
    return F::add(F::reduced(a), F::shifted(F::reduced(b), 30));
  });
  return sum;
}

at::Tensor sum_of(const at::Tensor& residues, at::OptionalIntArrayRef dims, bool keepdim) {
  return linear(residues, [&](const at::Tensor& x) { return at::sum(x, dims, keepdim, at::kLong); });
}

at::Tensor& sum(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType> type,
                at::Tensor& out) {
  note_cast(type.value_or(self.scalar_type()), out.scalar_type(), "aten::sum");
  assign(out, sum_of(operand(self, slot_type(out.scalar_type()), "aten::sum"), dims, keepdim));
  return out;
}

at::Tensor& mean(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType> type,
                 at::Tensor& out) {
  note_cast(type.value_or(self.scalar_type()), out.scalar_type(), "aten::mean");
  at::Tensor result = sum_of(operand(self, slot_type(out.scalar_type()), "aten::mean"), dims, keepdim);
  if (result.numel() != 0) {
    const std::int64_t count = self.numel() / result.numel();
    if (count == 0) refuse("aten::mean", "the mean of nothing");
    with_slots(at::kLong, [&]<class F, class Slot>(F, Slot) {
      const std::uint64_t factor = F::inverse(F::of(count));  // count < p
      for_each_element<std::int64_t, std::int64_t, 1>(result, {result},
                                                      [=](std::uint64_t x) { return F::multiply(x, factor); });
    });
  }
  assign(out, result);
  return out;
}

at::Tensor& cumsum(const at::Tensor& self, std::int64_t dim, std::optional<at::ScalarType> type, at::Tensor& out) {
  note_cast(type.value_or(self.scalar_type()), out.scalar_type(), "aten::cumsum");
  const at::Tensor residues = operand(self, slot_type(out.scalar_type()), "aten::cumsum");
  assign(out, linear(residues, [&](const at::Tensor& x) { return at::cumsum(x, dim, at::kLong); }));
  return out;
}

// Products along a dimension, each of all elements before it and itself. int64, in the shape of `residues`.
at::Tensor running_products(const at::Tensor& residues, std::int64_t dim) {
  if (residues.dim() == 0) return residues.to(at::kLong);
  at::Tensor result = residues.to(at::kLong).movedim(dim, -1).clone(at::MemoryFormat::Contiguous);
  const std::int64_t length = result.size(-1);
  with_slots(at::kLong, [&]<class F, class Slot>(F, Slot) {
    auto* const x = result.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < result.numel(); ++i)
      if (i % length != 0)
        x[i] = static_cast<std::int64_t>(
            F::multiply(static_cast<std::uint64_t>(x[i - 1]), static_cast<std::uint64_t>(x[i])));
  });
  return result.movedim(-1, dim);
}

at::Tensor product_of(const at::Tensor& residues, std::int64_t dim, bool keepdim) {
  if (residues.dim() == 0) return residues;
  const std::int64_t length = residues.size(dim);
  std::vector<std::int64_t> sizes = residues.sizes().vec();
  sizes[dim] = 1;
  const at::Tensor last = length == 0 ? at::ones(sizes, at::TensorOptions().dtype(at::kLong))
                                      : running_products(residues, dim).narrow(dim, length - 1, 1);
  return keepdim ? last : last.squeeze(dim);
}

at::Tensor& cumprod(const at::Tensor& self, std::int64_t dim, std::optional<at::ScalarType> type, at::Tensor& out) {
  note_cast(type.value_or(self.scalar_type()), out.scalar_type(), "aten::cumprod");
  const at::Tensor residues = operand(self, slot_type(out.scalar_type()), "aten::cumprod");
  assign(out, running_products(residues, at::maybe_wrap_dim(dim, self.dim())));
  return out;
}

at::Tensor& prod_dim(const at::Tensor& self, std::int64_t dim, bool keepdim, std::optional<at::ScalarType> type,
                     at::Tensor& out) {
  note_cast(type.value_or(self.scalar_type()), out.scalar_type(), "aten::prod");
  const at::Tensor residues = operand(self, slot_type(out.scalar_type()), "aten::prod");
  assign(out, product_of(residues, at::maybe_wrap_dim(dim, self.dim()), keepdim));
  return out;
}

at::Tensor prod(const at::Tensor& self, std::optional<at::ScalarType> type) {
  const at::ScalarType asked = type.value_or(self.scalar_type()), held = field_type(asked);
  note_cast(self.scalar_type(), asked, "aten::prod");
  TORCH_CHECK(at::isFloatingType(held), "prod: wanted a float type for floats of the device 'field', got ",
              name_of(held));
  const at::Tensor residues = operand(self, slot_type(held), "aten::prod");
  return wrapped(product_of(residues.reshape({-1}), 0, false).to(slot_type(held)), held);
}

at::Tensor trace(const at::Tensor& self) { return self.diagonal().sum(); }

}  // namespace
}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  define(library, "sum.IntList_out", sum);
  define(library, "mean.out", mean);
  define(library, "cumsum.out", cumsum);
  define(library, "cumprod.out", cumprod);
  define(library, "prod", prod);
  define(library, "prod.int_out", prod_dim);
  define(library, "trace", trace);
}
