// How the operations of the device are registered, and run on the CPU where they only move slots.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <memory>

#include "field/slots.h"

namespace fractus::field {

// Runs an operation of torch's CPU on the slots of its tensors. `field`: the slots hold residues, every tensor but the
// indices and masks is a float of the device in one type, and so are the results. Else all are whole numbers or truth
// values, and a result that is not ends the run.
void run_on_slots(const c10::OperatorHandle& operation, torch::jit::Stack* stack, bool field);

// Whether a tensor among the last arguments on the stack is a float of the device.
bool any_field(const c10::OperatorHandle& operation, const torch::jit::Stack& stack);

// An operation that moves elements and computes nothing, of torch's CPU.
void moved(const c10::OperatorHandle& operation, torch::jit::Stack* stack);

// Registers a function for calls in which a float of the device takes part; the others are torch's CPU's.
struct ForField final : c10::OperatorKernel {
  explicit ForField(c10::KernelFunction function) : function(std::move(function)) {}
  void operator()(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (any_field(operation, *stack))
      function.callBoxed(operation, keys, stack);
    else
      run_on_slots(operation, stack, /*field=*/false);
  }
  c10::KernelFunction function;
};

template <class Function>
void define(torch::Library& library, const char* name, Function* function) {
  library.impl(name, torch::CppFunction::makeFromBoxedFunctor(
                         std::make_unique<ForField>(c10::KernelFunction::makeFromUnboxedRuntimeFunction(function))));
}

// ---- of values

// The residue of a constant of the program.
std::uint64_t constant(const at::Scalar& value, const char* operation);

// A tensor of the CPU with the residues of an argument in slots of the given type: of a float of the device its own, of
// whole numbers those modulo p, of a 0-dim tensor of the CPU that of the constant it is.
at::Tensor operand(const at::Tensor& x, at::ScalarType slot, const char* operation);

// Writes residues into `out`, which gets their shape.
void assign(const at::Tensor& out, const at::Tensor& residues);

// Notes down that a value of type `from` is kept as `to`, where that is narrower.
void note_cast(at::ScalarType from, at::ScalarType to, const char* operation);

}  // namespace fractus::field
