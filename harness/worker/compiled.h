// Forms from what is compiled already: operators of shared libraries, and programs.
#pragma once

#include "contracts/form.h"
#include "harness/outside.h"

namespace fractus::worker {

// An operator that a shared library registers with TORCH_LIBRARY, called through the dispatcher.
Form load_operator(const outside::Spec& spec, const Contract& contract);

// A TorchScript program, its forward.
Form load_program(const outside::Spec& spec, const Contract& contract);

}  // namespace fractus::worker
