// Operations of torch's CPU on slots, and the fallback of all that the device does not define.
#include "field/run.h"

#include <string>
#include <vector>

#include "field/constant.h"
#include "field/record.h"

namespace fractus::field {
namespace {

bool is_index(const std::string& name) {
  return name == "index" || name == "indices" || name == "mask" || name == "condition";
}

template <class F>
void for_each_tensor(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& x : value.toTensorVector()) f(x);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector())
      if (x) f(*x);
  } else if (value.isList()) {  // an empty list, or one whose type was forgotten
    for (const c10::IValue& x : value.toListRef())
      if (x.isTensor()) f(x.toTensor());
  }
}

// The argument with each tensor of the device in it replaced by its slots.
c10::IValue on_cpu(const c10::IValue& value) {
  const auto replaced = [](const at::Tensor& x) { return on_device(x) ? slots(x) : x; };
  if (value.isTensor()) return replaced(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& x : value.toTensorVector()) list.push_back(replaced(x));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector())
      list.push_back(x ? std::optional(replaced(*x)) : std::nullopt);
    return list;
  }
  if (value.isDevice() && value.toDevice().is_privateuseone()) return c10::Device(c10::DeviceType::CPU);
  return value;
}

struct Written {
  at::Tensor original, on_cpu;
};

at::Tensor result_of(const at::Tensor& result, const std::vector<Written>& written, bool field,
                     const std::string& name) {
  if (!result.defined()) return result;
  for (const Written& each : written)
    if (each.on_cpu.is_same(result)) return each.original;
  if (field && result.scalar_type() != at::kBool)
    return wrapped(result, result.scalar_type() == at::kInt ? at::kFloat : at::kDouble);
  if (at::isFloatingType(result.scalar_type()) || at::isComplexType(result.scalar_type()))
    refuse(name, std::string("it makes ") + name_of(result.scalar_type()) + " of whole numbers");
  return wrapped(result, result.scalar_type());
}

void fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const std::string& name = operation.schema().name();
  if (operation.hasTag(at::Tag::nondeterministic_seeded))
    refuse(name, "a random draw, which no definition can be held against", "non-deterministic");
  if (any_field(operation, *stack)) refuse(name, "it has no meaning over a field, or none that this device knows");
  run_on_slots(operation, stack, /*field=*/false);
}

}  // namespace

bool any_field(const c10::OperatorHandle& operation, const torch::jit::Stack& stack) {
  bool found = false;
  for (const c10::IValue& value : torch::jit::last(stack, operation.schema().arguments().size()))
    for_each_tensor(value, [&](const at::Tensor& x) { found = found || is_field(x); });
  return found;
}

void run_on_slots(const c10::OperatorHandle& operation, torch::jit::Stack* stack, bool field) {
  const c10::FunctionSchema& schema = operation.schema();
  const std::string& name = schema.name();
  const std::size_t count = schema.arguments().size();
  std::vector<c10::IValue> arguments = torch::jit::pop(*stack, count);

  std::optional<at::ScalarType> type;
  std::vector<Written> written, outs;
  for (std::size_t i = 0; i < count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (field) {
      for_each_tensor(arguments[i], [&](const at::Tensor& x) {
        if (!x.defined()) return;
        if (is_index(argument.name())) {
          TORCH_CHECK(!is_field(x), name, ": argument '", argument.name(),
                      "': wanted whole numbers or truth values, got ", name_of(x.scalar_type()));
          return;
        }
        TORCH_CHECK(is_field(x), name, ": argument '", argument.name(), "': wanted floats of the device 'field', got ",
                    name_of(x.scalar_type()), " of '", x.device(), "'");
        TORCH_CHECK(!type || *type == x.scalar_type(), name, ": wanted tensors of one type, got ", name_of(*type),
                    " and ", name_of(x.scalar_type()));
        type = x.scalar_type();
      });
    }
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (writes && arguments[i].isTensor() && on_device(arguments[i].toTensor())) {
      const at::Tensor original = arguments[i].toTensor();
      // An out= tensor takes the shape of the result, and only the device can give it that.
      if (argument.is_out()) {
        outs.push_back({original, at::empty({0}, at::TensorOptions().dtype(slot_type(original.scalar_type())))});
        written.push_back(outs.back());
      } else {
        written.push_back({original, slots(original)});
      }
      arguments[i] = written.back().on_cpu;
    } else {
      arguments[i] = on_cpu(arguments[i]);
    }
  }

  torch::jit::Stack results(std::move(arguments));
  operation.callBoxed(results);
  for (const Written& out : outs) {
    resize_to(out.original, out.on_cpu.sizes());
    slots(out.original).copy_(out.on_cpu);
  }
  for (c10::IValue& value : results) {
    if (value.isTensor()) {
      value = result_of(value.toTensor(), written, field, name);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back(result_of(x, written, field, name));
      value = list;
    }
    stack->push_back(std::move(value));
  }
}

void moved(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  run_on_slots(operation, stack, any_field(operation, *stack));
}

std::uint64_t constant(const at::Scalar& value, const char* operation) {
  if (value.isBoolean()) return value.toBool() ? 1 : 0;
  if (value.isIntegral(/*includeBool=*/false)) return residue({value.toLong()}, bits());
  if (value.isComplex()) refuse(operation, "a complex constant");
  const double x = value.toDouble();
  if (!std::isfinite(x)) refuse(operation, "the constant " + std::to_string(x));
  return residue(read(x), bits());
}

at::Tensor operand(const at::Tensor& x, at::ScalarType slot, const char* operation) {
  if (is_field(x)) {
    const at::Tensor own = slots(x);
    return own.scalar_type() == slot ? own : own.to(slot);
  }
  if (on_device(x)) {
    if (at::isComplexType(x.scalar_type())) refuse(operation, "complex numbers");
    const at::Tensor own = slots(x);
    if (own.scalar_type() == at::kBool) return own.to(slot);
    return own.to(at::kLong).remainder(static_cast<std::int64_t>(modulus())).to(slot);
  }
  TORCH_CHECK(x.is_cpu() && x.dim() == 0, operation, ": wanted all tensors on the device 'field', got one of shape ",
              x.sizes(), " on '", x.device(), "': use x.to('field')");
  std::uint64_t value = 0;
  if (width_of(x.scalar_type()) != 0 && x.scalar_type() != at::kDouble) {
    const float held = x.item<float>();
    if (!std::isfinite(held)) refuse(operation, "the constant " + std::to_string(held));
    value = residue(read(held), bits());
  } else {
    value = constant(x.item(), operation);
  }
  return at::full({}, static_cast<std::int64_t>(value), at::TensorOptions().dtype(slot));
}

void assign(const at::Tensor& out, const at::Tensor& residues) {
  resize_to(out, residues.sizes());
  slots(out).copy_(residues);
}

void note_cast(at::ScalarType from, at::ScalarType to, const char* operation) {
  if (width_of(to) != 0 && width_of(to) < width_of(from))
    remark("cast", operation, std::string(name_of(from)) + " to " + name_of(to));
}

}  // namespace fractus::field

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fractus::field::fallback>());
}
