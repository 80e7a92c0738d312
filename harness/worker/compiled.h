// Forms from what is compiled already: operators of shared libraries, and programs.
#pragma once

#include "contracts/form.h"
#include "harness/outside.h"

namespace fractus::worker {

// An operator that a shared library registers with TORCH_LIBRARY, called through the dispatcher.
Form load_operator(const outside::Spec& spec, const Contract& contract);

// A TorchScript program, its forward.
Form load_program(const outside::Spec& spec, const Contract& contract);

// An AOTInductor package, which is a forward for the CPU. It was compiled for contiguous inputs, all of them there:
// each call gives it contiguous copies, and zeros for an input that is absent.
Form load_package(const outside::Spec& spec, const Contract& contract);

}  // namespace fractus::worker
