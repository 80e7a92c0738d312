// From a few blocks to all: whether a program does the same with each block of a sequence, by the operations that it
// runs. docs/identity.md has what is claimed, what is assumed, and the proof.
#pragma once

#include <string>
#include <vector>

#include "contracts/field_call.h"
#include "properties/property.h"

namespace fractus {

// A trace with its repeated parts folded: a step, or steps that come `count` times behind each other.
struct Folded {
  Step step;                 // where `body` is empty
  std::vector<Folded> body;  // else
  std::int64_t count = 1;

  bool operator==(const Folded&) const = default;
};
std::vector<Folded> folded(const std::vector<Step>& trace);

// Whether traces at lengths of equal distances are one program: the same steps in the same nesting, and every count and
// extent affine in the length. False for fewer than three traces and for empty ones.
bool alike(const std::vector<std::vector<Step>>& traces);

// Traces the form at 2, 3 and 4 blocks, 5 where these do not tell, and the remainders 0, 1 and block - 1. The case's
// own length is two blocks.
Outcome check_induction(Expectation& expectation, const Subject& subject);

}  // namespace fractus
