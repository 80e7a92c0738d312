#include "harness/region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace fractus {
namespace {

constexpr std::int64_t padded_to = 64;  // elements a row is a multiple of, as vocabularies and widths are padded to

using protocol::Mapping;
using protocol::Placement;

// What is no whole number from 0 on stands in calls that are to be refused: their outputs have no place.
std::int64_t whole_from(double value) { return value >= 0 && value <= 0x1p31 ? static_cast<std::int64_t>(value) : 0; }

// The call's extents by symbol, checked against every tensor.
Dims extents(const Contract& contract, const Call& call) {
  if (call.inputs.size() != contract.inputs.size())
    throw std::invalid_argument(
        fmt::format("{}: wanted {} inputs, got {}", contract.kernel, contract.inputs.size(), call.inputs.size()));
  Dims dims;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorSpec& spec = contract.inputs[i];
    if (!call.inputs[i]) {
      if (may_be_absent(spec)) continue;
      throw std::invalid_argument(fmt::format("{}: {} is missing", contract.kernel, spec.name));
    }
    const Shape& shape = call.inputs[i]->shape;
    bool fits = shape.size() == spec.dims.size() && (call.inputs[i]->dtype == DType::int64) == spec.dtype.has_value();
    for (std::size_t d = 0; fits && d < shape.size(); ++d) fits = agrees(spec.dims[d], shape[d], dims);
    if (!fits || static_cast<std::int64_t>(call.inputs[i]->values.size()) != element_count(shape))
      throw std::invalid_argument(fmt::format("{}: {}: wanted ({}), got {} with {} values", contract.kernel, spec.name,
                                              fmt::join(spec.dims, ", "), to_string(shape),
                                              call.inputs[i]->values.size()));
  }
  settle_sets(contract, dims);
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    if (!contract.inputs[i].optional && call.inputs[i].has_value() != belongs(contract.inputs[i], dims))
      throw std::invalid_argument(fmt::format("{}: {} is {}", contract.kernel, contract.inputs[i].name,
                                              call.inputs[i] ? "given beside what stands for it" : "missing"));
  for (const ScalarSpec& scalar : contract.scalars) {
    if (!call.scalars.contains(scalar.name))
      throw std::invalid_argument(fmt::format("{}: {} is missing", contract.kernel, scalar.name));
    // One that is an extent of an output, top_k, says how large that one is.
    if (scalar.whole) dims.emplace(scalar.name, whole_from(call.scalars.at(scalar.name)));
  }
  return dims;
}

DType float_dtype(const Call& call) {
  for (const auto& tensor : call.inputs)
    if (tensor && tensor->dtype != DType::int64) return tensor->dtype;
  return DType::float32;
}

// Calls visit(offset in elements of the storage) for each element, row by row.
template <class Visit>
void walk(const Placement& placement, Visit visit) {
  const Shape& shape = placement.shape;
  const std::int64_t count = element_count(shape);
  if (count == 0) return;
  if (shape.empty()) return visit(placement.storage_offset);
  const std::size_t inner = shape.size() - 1;
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::int64_t row = 0; row < count / shape[inner]; ++row) {
    std::int64_t offset = placement.storage_offset;
    for (std::size_t d = 0; d < inner; ++d) offset += index[d] * placement.strides[d];
    for (std::int64_t i = 0; i < shape[inner]; ++i) visit(offset + i * placement.strides[inner]);
    for (std::size_t d = inner; d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

std::string index_text(const Shape& shape, std::int64_t flat) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

// The tensor whose dimensions a and b have changed places in memory.
Placement place_swapped(const std::string& name, const Array& array, std::size_t a, std::size_t b, std::int64_t& end) {
  Shape swapped = array.shape;
  std::swap(swapped[a], swapped[b]);
  Placement placement = protocol::place(name, array.dtype, swapped, end);
  placement.shape = array.shape;
  std::swap(placement.strides[a], placement.strides[b]);
  return placement;
}

// Throws where the values differ along what is to be expanded.
Placement place_expanded(const std::string& name, const Array& array, const std::vector<bool>& expanded,
                         std::int64_t& end) {
  Shape one = array.shape;
  for (std::size_t d = 0; d < one.size(); ++d)
    if (expanded[d]) one[d] = std::min<std::int64_t>(1, one[d]);
  Placement placement = protocol::place(name, array.dtype, one, end);
  placement.shape = array.shape;
  for (std::size_t d = 0; d < one.size(); ++d)
    if (expanded[d]) placement.strides[d] = 0;

  std::vector<double> held(static_cast<std::size_t>(element_count(one)));
  std::vector<bool> known(held.size());
  std::int64_t flat = 0;
  walk(placement, [&](std::int64_t offset) {
    const double value = array.values[static_cast<std::size_t>(flat)];
    const auto at = static_cast<std::size_t>(offset);
    if (known[at] && std::bit_cast<std::uint64_t>(held[at]) != std::bit_cast<std::uint64_t>(value))
      throw std::invalid_argument(
          fmt::format("{}: cannot be expanded: element {} differs from what it is to share "
                      "memory with",
                      name, index_text(array.shape, flat)));
    held[at] = value;
    known[at] = true;
    ++flat;
  });
  return placement;
}

Placement place_as(Layout layout, const std::string& name, const Array& array, std::int64_t& end) {
  const Shape& shape = array.shape;
  const std::size_t rank = shape.size();
  if (layout == Layout::transposed && rank >= 2) return place_swapped(name, array, 0, 1, end);
  if (layout == Layout::column_major && rank >= 2) return place_swapped(name, array, rank - 2, rank - 1, end);
  if (layout == Layout::offset) {
    Placement placement = protocol::place(name, array.dtype, {element_count(shape) + 1}, end);
    placement.shape = shape;
    placement.strides = protocol::contiguous_strides(shape);
    placement.storage_offset = 1;
    return placement;
  }
  if (layout == Layout::sliced && !shape.empty()) {
    Shape wider = shape;
    wider.back() = 2 * wider.back() + 1;
    Placement placement = protocol::place(name, array.dtype, wider, end);
    placement.shape = shape;
    placement.strides.back() = 2;
    placement.storage_offset = 1;
    return placement;
  }
  if (layout == Layout::packed && rank >= 1) {
    Shape wider = shape;
    wider.back() *= 3;
    Placement placement = protocol::place(name, array.dtype, wider, end);
    placement.shape = shape;
    placement.storage_offset = shape.back();
    return placement;
  }
  if (layout == Layout::padded && rank >= 1) {
    Shape wider = shape;
    wider.back() += padded_to - wider.back() % padded_to;  // also where it is a multiple already
    Placement placement = protocol::place(name, array.dtype, wider, end);
    placement.shape = shape;
    return placement;
  }
  const std::vector<bool> expanded = expanded_dims(layout, rank);
  if (std::find(expanded.begin(), expanded.end(), true) != expanded.end())
    return place_expanded(name, array, expanded, end);
  return protocol::place(name, array.dtype, shape, end);
}

template <class Use>
void with_type(DType dtype, Use use) {
  switch (dtype) {
    case DType::float32: return use(float{});
    case DType::float64: return use(double{});
    case DType::int64: return use(std::int64_t{});
  }
}

void write(const Mapping& mapping, const Placement& placement, const Array& array) {
  with_type(placement.dtype, [&]<class T>(T) {
    T* data = reinterpret_cast<T*>(mapping.data() + placement.base);
    const double* value = array.values.data();
    walk(placement, [&](std::int64_t offset) { data[offset] = static_cast<T>(*value++); });
  });
}

bool all_poison(const std::byte* from, const std::byte* to) {
  return std::all_of(from, to, [](std::byte byte) { return byte == std::byte{protocol::poison}; });
}

std::vector<const Placement*> by_position(const RegionPlan& plan) {
  std::vector<const Placement*> all;
  for (const auto* list : {&plan.inputs, &plan.cotangents})
    for (const auto& placement : *list)
      if (placement) all.push_back(&*placement);
  for (const Placement& placement : plan.outputs) all.push_back(&placement);
  for (const auto& placement : plan.gradients)
    if (placement) all.push_back(&*placement);
  return all;
}

// What was changed inside an input's or a cotangent's storage: an element of it, or what lies between.
Breach changed(const Placement& placement, const std::byte* now, const std::byte* before) {
  const auto item = static_cast<std::int64_t>(item_size(placement.dtype));
  std::int64_t flat = 0;
  std::int64_t found = -1;
  walk(placement, [&](std::int64_t offset) {
    const std::int64_t at = placement.base + offset * item;
    if (found < 0 && std::memcmp(now + at, before + at, static_cast<std::size_t>(item)) != 0) found = flat;
    ++flat;
  });
  if (found < 0) return {"guard", fmt::format("wrote between the elements of {}", placement.name)};
  return {"modified-input", fmt::format("changed {}{}", placement.name, index_text(placement.shape, found))};
}

}  // namespace

RegionPlan plan_region(const Contract& contract, const Call& call) {
  const Dims dims = extents(contract, call);
  const DType dtype = float_dtype(call);
  if (call.cotangents.size() > contract.outputs.size() || call.gradients.size() > contract.inputs.size())
    throw std::invalid_argument(fmt::format("{}: {} cotangents and {} gradients asked of {} outputs and {} inputs",
                                            contract.kernel, call.cotangents.size(), call.gradients.size(),
                                            contract.outputs.size(), contract.inputs.size()));
  RegionPlan plan;
  std::int64_t end = protocol::guard_bytes;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    plan.inputs.emplace_back();
    const std::string& name = contract.inputs[i].name;
    if (!call.inputs[i]) continue;
    const Layout layout = layout_of(call.layouts, name);
    const auto partner = layout == Layout::shared ? shared_with(call.inputs, i) : std::nullopt;
    if (!partner) {
      plan.inputs.back() = place_as(layout, name, *call.inputs[i], end);
      continue;
    }
    if (call.inputs[i]->values != call.inputs[*partner]->values)
      throw std::invalid_argument(
          fmt::format("{}: cannot share the memory of {}: its values differ", name, contract.inputs[*partner].name));
    plan.inputs.back() = plan.inputs[*partner];
    plan.inputs.back()->name = name;
  }

  bool backward = false;
  for (std::size_t i = 0; i < call.cotangents.size(); ++i) {
    const auto& cotangent = call.cotangents[i];
    plan.cotangents.emplace_back();
    if (!cotangent) continue;
    backward = true;
    const TensorSpec& spec = contract.outputs[i];
    const Shape wanted = shape_of(spec, dims);
    if (cotangent->shape != wanted || static_cast<std::int64_t>(cotangent->values.size()) != element_count(wanted))
      throw std::invalid_argument(fmt::format("{}: cotangent of {}: wanted {}, got {} with {} values", contract.kernel,
                                              spec.name, to_string(wanted), to_string(cotangent->shape),
                                              cotangent->values.size()));
    Array placed{"", dtype, wanted, cotangent->values};
    plan.cotangents.back() =
        place_as(layout_of(call.layouts, "d" + spec.name), "cotangent of " + spec.name, placed, end);
  }
  plan.given_bytes = end;

  for (const TensorSpec& spec : contract.outputs)
    plan.outputs.push_back(protocol::place(spec.name, spec.dtype.value_or(dtype), shape_of(spec, dims), end));
  plan.gradients.resize(contract.inputs.size());
  // In a chain of calls the backward of a later one may bring gradients to one without cotangents of its own.
  const bool may_arrive = backward || call.record_graph;
  for (std::size_t i = 0; may_arrive && i < call.gradients.size(); ++i)
    if (call.gradients[i] && call.inputs[i] && call.inputs[i]->dtype != DType::int64)
      plan.gradients[i] =
          protocol::place("gradient of " + contract.inputs[i].name, call.inputs[i]->dtype, call.inputs[i]->shape, end);
  plan.bytes = end;
  return plan;
}

Region fill_region(const RegionPlan& plan, const Call& call) {
  Region region;
  region.memory = protocol::shared_memory(plan.bytes);
  region.mapping = Mapping(region.memory.get(), plan.bytes);
  std::memset(region.mapping.data(), protocol::poison, static_cast<std::size_t>(plan.bytes));
  for (std::size_t i = 0; i < plan.inputs.size(); ++i)
    if (plan.inputs[i]) write(region.mapping, *plan.inputs[i], *call.inputs[i]);
  for (std::size_t i = 0; i < plan.cotangents.size(); ++i)
    if (plan.cotangents[i]) write(region.mapping, *plan.cotangents[i], *call.cotangents[i]);
  region.given.assign(region.mapping.data(), region.mapping.data() + plan.given_bytes);
  return region;
}

std::vector<Breach> compare_given(const RegionPlan& plan, const Region& region) {
  std::vector<Breach> breaches;
  const std::byte* now = region.mapping.data();
  const std::byte* before = region.given.data();
  std::int64_t at = 0;
  for (const Placement* placement : by_position(plan)) {
    if (placement->base < at) continue;  // it shares the memory of one before it
    if (!all_poison(now + at, now + placement->base))
      breaches.push_back({"guard", fmt::format("wrote before the first element of {}", placement->name)});
    at = placement->base + placement->storage_bytes;
    const bool is_given = at <= plan.given_bytes;
    if (is_given && std::memcmp(now + placement->base, before + placement->base,
                                static_cast<std::size_t>(placement->storage_bytes)) != 0)
      breaches.push_back(changed(*placement, now, before));
    if (!all_poison(now + at, now + at + protocol::guard_bytes))
      breaches.push_back({"guard", fmt::format("wrote behind the last element of {}", placement->name)});
    at += protocol::guard_bytes;
  }
  return breaches;
}

Array read_tensor(const Mapping& mapping, const Placement& placement) {
  Array array{placement.name, placement.dtype, placement.shape, {}};
  array.values.reserve(static_cast<std::size_t>(element_count(placement.shape)));
  with_type(placement.dtype, [&]<class T>(T) {
    const T* data = reinterpret_cast<const T*>(mapping.data() + placement.base);
    walk(placement, [&](std::int64_t offset) { array.values.push_back(static_cast<double>(data[offset])); });
  });
  return array;
}

std::string first_unwritten(const Mapping& mapping, const Placement& placement) {
  if (placement.dtype == DType::int64) return {};  // poison is the integer -1, which anybody may compute
  const std::byte* data = mapping.data() + placement.base;
  const std::size_t item = item_size(placement.dtype);
  constexpr std::uint64_t pattern = ~std::uint64_t{0};
  std::int64_t flat = 0;
  std::int64_t found = -1;
  walk(placement, [&](std::int64_t offset) {
    if (found < 0 && std::memcmp(data + static_cast<std::size_t>(offset) * item, &pattern, item) == 0) found = flat;
    ++flat;
  });
  return found < 0 ? std::string{} : index_text(placement.shape, found);
}

}  // namespace fractus
