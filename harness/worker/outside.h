// Forms from outside of the build, as the worker loads them.
#pragma once

#include <string>

#include "contracts/form.h"
#include "harness/worker/language.h"

namespace fractus::worker {

// By the kind that the spec's ending says. Throws NotThere, std::invalid_argument where the spec is none, and whatever
// the candidate throws.
Form load_outside(const std::string& candidate, const Contract& contract);

// Opens the library that brings Python, once for the process. Throws std::runtime_error where that fails.
void open_python();

// Absent as long as no language was opened.
const Language* language();

}  // namespace fractus::worker
