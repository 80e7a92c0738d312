// A sequence in pieces over a finite field: forwards from state to state, then backwards, the gradient of a piece's
// state handed back as the cotangent of the state before. What properties/carry.cpp calls detached.
#pragma once

#include <vector>

#include "properties/property.h"

namespace fractus {

// The answer that the pieces' answers add up to, or the first that is none. `pieces` are lengths of at least 1 that sum
// to the sequence's.
FieldAnswer call_in_pieces(const Driver& driver, const FieldCall& whole, const std::vector<std::int64_t>& pieces,
                           const Subject& subject);

}  // namespace fractus
