// A call over a finite field in the words of one over floats, for the way to the worker and back: tensors of float64
// whose bits are the residues. No residue is the bit pattern of a NaN, so that doubles carry them unchanged.
#pragma once

#include <string>

#include "contracts/call.h"
#include "contracts/field_call.h"
#include "harness/protocol.h"
#include "harness/region.h"

namespace fractus {

Call bits_of(const FieldCall& call);

// What the worker says of the call, together with what its memory says. Throws where it cannot be read.
FieldAnswer read_field_answer(const protocol::Json& body, const RegionPlan& plan, const Region& region);

// Of a call whose process ended or was ended.
FieldAnswer lost_over_field(Status status, const std::string& message);

}  // namespace fractus
