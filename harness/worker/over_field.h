// One call of a form on the device `field`, whose numbers are elements of a finite field.
#pragma once

#include "harness/protocol.h"

namespace fractus::worker {

// The request is that of a call (harness/process.cpp) whose float64 tensors carry the bits of residues, with `bits` and
// `traced` beside. In a process that runs no call over floats: autograd counts the devices at its first backward.
protocol::Json serve_over_field(const protocol::Json& request, const protocol::Descriptor& memory);

}  // namespace fractus::worker
