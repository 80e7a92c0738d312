// The definition of block_attention (contracts/block_attention.h) over a finite field and over floats, and its degrees.
#pragma once

#include "oracle/rational_expected.h"

namespace fractus::oracle::block_attention {

FieldExpected over_field(const FieldCall& call);  // throws std::domain_error at a pole
Degrees degrees(const FieldCall& call);
Expected expected(const FloatCall& call);

}  // namespace fractus::oracle::block_attention
