// The definition of linear attention over a finite field, for a whole call, and its degrees there.
#pragma once

#include "oracle/rational.h"

namespace fractus::oracle::linear_attention {

// The 1e-20 that is added to den, or what stands in its place: a power of ten, both, or nothing.
struct Epsilon {
  bool dropped = false;
  int exponent = -20;
  bool beside = false;  // the contract's own as well
};

// Throws std::domain_error where the point is a pole.
FieldExpected over_field(const FieldCall& call, const Epsilon& epsilon = {});

// All groups are alike, so that one of them tells.
Degrees degrees(FieldCall call);

}  // namespace fractus::oracle::linear_attention
