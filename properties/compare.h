// The comparisons that checks are made of.
#pragma once

#include <string>

#include "properties/property.h"

namespace fractus {

// The call that a case describes, in the subject's settings (the case's own settings win).
Call call_of(const Expectation& expectation, const Subject& subject);

// Anything but an answer of the right form: a crash, an exception, a breach. Empty where all is well.
std::optional<Finding> trouble(const Answer& answer);

// Every output and gradient of the answer against the definition, element by element, by the certified bound.
// A gradient that did not arrive counts as zeros, as autograd means it; where a tensor of the call is empty, outputs
// may be detached and a missing gradient is accepted.
Outcome compare(Expectation& expectation, const Answer& answer);

// The outputs alone.
Outcome compare_outputs(Expectation& expectation, const Answer& answer);

// Bit equality with the definition where the exactness certificate demands it.
void demand_exact(Expectation& expectation, const Answer& answer, Outcome& outcome);

// Bit equality of two answers; `what` says how they came about ("the same call twice").
std::optional<Finding> differ(const Answer& first, const Answer& second, const std::string& what);

// Adds b to a; a's finding stays where it has one.
void merge(Outcome& a, Outcome b);

// A call whose answer is judged as it stands: trouble first, then values.
Outcome call_and_compare(Expectation& expectation, const Subject& subject, const Call& call);

Shape index_of(std::size_t flat, const Shape& shape);

}  // namespace fractus
