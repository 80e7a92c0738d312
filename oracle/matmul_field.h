// The definition of matmul (contracts/matmul.h) over a finite field and over floats, and its degrees.
#pragma once

#include "oracle/rational_expected.h"

namespace fractus::oracle::matmul {

FieldExpected over_field(const FieldCall& call);  // throws std::domain_error at a pole
Degrees degrees(const FieldCall& call);
Expected expected(const FloatCall& call);

}  // namespace fractus::oracle::matmul
