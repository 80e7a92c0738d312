// Operations that move elements: torch's CPU runs them on the slots. Those that also add where two elements meet add in
// the field.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>

#include "field/record.h"
#include "field/run.h"

namespace fractus::field {
namespace {

at::ScalarType type_of(at::TensorList tensors) { return field_type(at::native::result_type(tensors)); }

at::Tensor chosen(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  const at::ScalarType type = type_of({self, other});
  const at::Tensor truth = on_device(condition) ? slots(condition) : condition;
  TORCH_CHECK(truth.scalar_type() == at::kBool, "where: wanted truth values as the condition, got ",
              name_of(condition.scalar_type()));
  const at::ScalarType slot = slot_type(type);
  return wrapped(at::where(truth, operand(self, slot, "aten::where"), operand(other, slot, "aten::where")), type);
}

at::Tensor& chosen_into(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const at::Tensor result = chosen(condition, self, other);
  note_cast(result.scalar_type(), out.scalar_type(), "aten::where");
  assign(out, slots(result));
  return out;
}

at::Tensor joined(const at::ITensorListRef& tensors, std::int64_t dim) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& x : tensors) parts.push_back(x);
  const at::ScalarType type = type_of(parts);
  for (at::Tensor& x : parts) {
    TORCH_CHECK(on_device(x), "cat: wanted all tensors on the device 'field', got one on '", x.device(), "'");
    x = operand(x, slot_type(type), "aten::cat");
  }
  return wrapped(at::cat(parts, dim), type);
}

at::Tensor& joined_into(const at::ITensorListRef& tensors, std::int64_t dim, at::Tensor& out) {
  const at::Tensor result = joined(tensors, dim);
  note_cast(result.scalar_type(), out.scalar_type(), "aten::cat");
  assign(out, slots(result));
  return out;
}

at::Tensor on_cpu(const at::Tensor& x) {
  TORCH_CHECK(!is_field(x), "wanted whole numbers or truth values to index with, got ", name_of(x.scalar_type()));
  return on_device(x) ? slots(x) : x;
}

at::Tensor& masked_fill_scalar(at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  slots(self).masked_fill_(on_cpu(mask), static_cast<std::int64_t>(constant(value, "aten::masked_fill")));
  return self;
}

at::Tensor& masked_fill_tensor(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill_: wanted a value without dimensions, got one of shape ", value.sizes());
  const at::Tensor own = slots(self);
  own.masked_fill_(on_cpu(mask), operand(value, own.scalar_type(), "aten::masked_fill"));
  return self;
}

at::Tensor& index_fill_scalar(at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Scalar& value) {
  slots(self).index_fill_(dim, on_cpu(index), static_cast<std::int64_t>(constant(value, "aten::index_fill")));
  return self;
}

at::Tensor& index_fill_tensor(at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Tensor& value) {
  const at::Tensor own = slots(self);
  own.index_fill_(dim, on_cpu(index), operand(value, own.scalar_type(), "aten::index_fill"));
  return self;
}

at::Tensor& scatter_value(const at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Scalar& value,
                          at::Tensor& out) {
  const auto residue = static_cast<std::int64_t>(constant(value, "aten::scatter"));
  assign(out, at::scatter(operand(self, slot_type(out.scalar_type()), "aten::scatter"), dim, on_cpu(index), residue));
  return out;
}

// ---- where elements meet

// A tensor of the shape that holds where each element lies in row-major order: what an operation of torch makes of it
// says where that operation takes elements from, or puts them.
at::Tensor positions_of(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::TensorOptions().dtype(at::kLong)).view(sizes);
}

// target[positions[i]] += values[i], one after the other; `positions` are those of positions_of(target.sizes()).
void accumulate(const at::Tensor& target, const at::Tensor& positions, const at::Tensor& values) {
  const at::Tensor sums = target.contiguous(), at = positions.contiguous();
  const at::Tensor terms = values.expand(positions.sizes()).contiguous();
  with_slots(target.scalar_type(), [&]<class F, class Slot>(F, Slot) {
    Slot* const sum = sums.mutable_data_ptr<Slot>();
    const Slot* const term = terms.const_data_ptr<Slot>();
    const std::int64_t* const where = at.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < at.numel(); ++i)
      sum[where[i]] =
          static_cast<Slot>(F::add(static_cast<std::uint64_t>(sum[where[i]]), static_cast<std::uint64_t>(term[i])));
  });
  if (!sums.is_same(target)) target.copy_(sums);
}

at::Tensor own_copy(const at::Tensor& self, const at::Tensor& out, const char* name) {
  return operand(self, slot_type(out.scalar_type()), name).clone(at::MemoryFormat::Contiguous);
}

at::Tensor& scatter_add(const at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Tensor& source,
                        at::Tensor& out) {
  TORCH_CHECK(source.scalar_type() == self.scalar_type(), "scatter_add: wanted a source of ",
              name_of(self.scalar_type()), ", got ", name_of(source.scalar_type()));
  const at::Tensor to = own_copy(self, out, "aten::scatter_add"), index_here = on_cpu(index);
  at::Tensor from = operand(source, to.scalar_type(), "aten::scatter_add");
  at::Tensor positions = positions_of(to.sizes());
  if (to.dim() == 0) positions = positions.view({1});
  if (index_here.numel() != 0) {
    const at::Tensor wide = to.dim() == 0 ? index_here.view({1}) : index_here;
    if (from.dim() == 0) from = from.view({1});
    for (std::int64_t i = 0; i < wide.dim(); ++i) {
      TORCH_CHECK(wide.size(i) <= from.size(i), "scatter_add: an index of shape ", index.sizes(),
                  " reaches beyond the source of shape ", source.sizes());
      from = from.narrow(i, 0, wide.size(i));
    }
    accumulate(to, positions.gather(dim, wide), from);
  }
  assign(out, to);
  return out;
}

at::Tensor& scatter_reduce(const at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Tensor& source,
                           std::string_view reduce, bool include_self, at::Tensor& out) {
  if (reduce != "sum") refuse("aten::scatter_reduce", "reduce='" + std::string(reduce) + "'");
  if (include_self) return scatter_add(self, dim, index, source, out);
  return scatter_add(at::scatter(self, dim, index, 0), dim, index, source, out);
}

at::Tensor& scatter_with(const at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Tensor& source,
                         std::string_view reduce, at::Tensor& out) {
  if (reduce != "add") refuse("aten::scatter", "reduce='" + std::string(reduce) + "'");
  return scatter_add(self, dim, index, source, out);
}

at::Tensor& index_add(const at::Tensor& self, std::int64_t dim, const at::Tensor& index, const at::Tensor& source,
                      const at::Scalar& alpha, at::Tensor& out) {
  const at::Tensor to = own_copy(self, out, "aten::index_add"), here = on_cpu(index);
  const at::Tensor scaled = constant(alpha, "aten::index_add") == 1 ? source : at::mul(source, alpha);
  const at::Tensor from = operand(scaled, to.scalar_type(), "aten::index_add");
  const at::Tensor positions = positions_of(to.sizes()).index_select(dim, here.dim() == 0 ? here.view({1}) : here);
  TORCH_CHECK(positions.numel() == from.numel(), "index_add: a source of shape ", source.sizes(), " does not fit ",
              index.numel(), " indices of a tensor of shape ", self.sizes());
  accumulate(to, positions, from.view(positions.sizes()));
  assign(out, to);
  return out;
}

at::Tensor& index_put(at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& values,
                      bool adds, bool) {
  const at::Tensor to = slots(self);
  c10::List<std::optional<at::Tensor>> here;
  for (const std::optional<at::Tensor>& index : indices)
    here.push_back(index && index->defined() ? std::optional(on_cpu(*index)) : std::nullopt);
  note_cast(values.scalar_type(), self.scalar_type(), "aten::index_put");
  const at::Tensor from = operand(values, to.scalar_type(), "aten::index_put");
  if (adds)
    accumulate(to, at::index(positions_of(to.sizes()), here), from);
  else
    at::index_put_(const_cast<at::Tensor&>(to), here, from);
  return self;
}

at::Tensor& put(at::Tensor& self, const at::Tensor& index, const at::Tensor& source, bool adds) {
  const at::Tensor to = slots(self), from = operand(source, to.scalar_type(), "aten::put").reshape(index.sizes());
  if (adds)
    accumulate(to, at::take(positions_of(to.sizes()), on_cpu(index)), from);
  else
    at::Tensor(to).put_(on_cpu(index), from);
  return self;
}

at::Tensor embedding_backward(const at::Tensor& gradient, const at::Tensor& indices, std::int64_t rows,
                              std::int64_t padding, bool by_frequency) {
  if (by_frequency) refuse("aten::embedding_dense_backward", "scale_grad_by_freq=True");
  const at::Tensor flat = on_cpu(indices).reshape({-1});
  const at::Tensor kept = at::nonzero(flat.ne(padding)).squeeze(1);
  const at::Tensor from = slots(gradient).reshape({flat.numel(), -1});
  const at::Tensor to = at::zeros({rows, from.size(1)}, from.options());
  accumulate(to, positions_of(to.sizes()).index_select(0, flat.index_select(0, kept)), from.index_select(0, kept));
  return wrapped(to, gradient.scalar_type());
}

at::Tensor unfold_backward(const at::Tensor& gradient, at::IntArrayRef sizes, std::int64_t dim, std::int64_t size,
                           std::int64_t step) {
  const at::Tensor from = slots(gradient), to = at::zeros(sizes, from.options());
  accumulate(to, positions_of(sizes).unfold(dim, size, step), from);
  return wrapped(to, gradient.scalar_type());
}

void refuse_composite(const c10::OperatorHandle& operation, torch::jit::Stack*) {
  refuse(operation.schema().name(), "it has no meaning over a field, or none that this device knows");
}

}  // namespace
}  // namespace fractus::field

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  using namespace fractus::field;
  for (const char* name : {"gather",
                           "gather.out",
                           "index.Tensor",
                           "index.Tensor_out",
                           "index_select",
                           "index_select.out",
                           "flip",
                           "roll",
                           "tril",
                           "tril.out",
                           "triu",
                           "triu.out",
                           "take",
                           "take.out",
                           "masked_select",
                           "masked_select.out",
                           "index_copy.out",
                           "scatter.src_out",
                           "masked_scatter_",
                           "eye.out",
                           "eye.m_out"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&moved>());
  define(library, "where.self", chosen);
  define(library, "where.self_out", chosen_into);
  define(library, "cat", joined);
  define(library, "cat.out", joined_into);
  define(library, "masked_fill_.Scalar", masked_fill_scalar);
  define(library, "masked_fill_.Tensor", masked_fill_tensor);
  define(library, "index_fill_.int_Scalar", index_fill_scalar);
  define(library, "index_fill_.int_Tensor", index_fill_tensor);
  define(library, "scatter.value_out", scatter_value);
  define(library, "scatter_add.out", scatter_add);
  define(library, "scatter_reduce.two_out", scatter_reduce);
  define(library, "scatter.reduce_out", scatter_with);
  define(library, "index_add.out", index_add);
  define(library, "_index_put_impl_", index_put);
  define(library, "put_", put);
  define(library, "embedding_dense_backward", embedding_backward);
  define(library, "unfold_backward", unfold_backward);
  // What torch would take apart, or hand to a backend, by arithmetic of floats.
  for (const char* name : {"convolution_overrideable", "native_layer_norm"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_composite>());
}
