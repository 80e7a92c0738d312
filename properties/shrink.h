// From a failing case to the smallest one that fails in the same way.
#pragma once

#include <functional>

#include "properties/property.h"

namespace fractus {

// Cases simpler than c in one respect each, the boldest step first: fewer groups, tokens, pieces, a narrower head,
// fewer tensors, a plain layout and fill, a smaller value of a form's own parameter.
rc::Seq<Case> simpler(const Driver& driver, const Case& c);

struct Shrunk {
  Case smallest;
  Finding finding;
  int steps = 0;  // successful ones
  int attempts = 0;
};

// RapidCheck's descent: the first simpler case that still fails is shrunk in turn, until none does or `patience` checks
// have been made. `finding_of` runs a case; a case counts as failing the same way if kind and tensor are the same.
Shrunk shrink(const Driver& driver, const Case& failing, const Finding& finding,
              const std::function<std::optional<Finding>(const Case&)>& finding_of, int patience);

}  // namespace fractus
