// Calls over a finite field: their random points, how many of them it takes, what an answer is compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contracts/field_call.h"
#include "oracle/rational.h"
#include "properties/property.h"

namespace fractus {

// 31 for float32 and 61 for float64.
int field_bits(DType dtype);
std::string field_name(int bits);  // "GF(2^31-1)"

// How often a call is drawn anew, and the chance that a wrong form passes all of these draws.
struct Certainty {
  int draws = 1;
  double escape = 0;
};
Certainty certainty_of(const oracle::Degrees& degrees, int bits);

// The case's call at a random point: every element of every tensor drawn uniformly and by itself, whole numbers as the
// case's own fill has them. `draw` tells one point from another.
FieldCall field_call(const Expectation& expectation, const Subject& subject, std::uint64_t draw);

// The first element, outputs first, at which an answer is another one than what is expected.
struct Mismatch {
  std::string tensor;
  Shape index;
  std::uint64_t expected = 0, got = 0;
};
// A gradient that did not arrive counts as zeros, as autograd means it.
std::optional<Mismatch> first_mismatch(const oracle::FieldExpected& expected, const FieldAnswer& answer);

// Whether the tensor of that name is what is expected of it, throughout.
bool same_tensor(const std::string& tensor, const oracle::FieldExpected& expected, const FieldAnswer& answer);

// Adds remarks to others; those of one place stand once, with their count.
void add_remarks(std::vector<Remark>& all, const std::vector<Remark>& more);

// "aten::exp at attention.py:42 in blocks (float64 to float32)"
std::string text_of(const Remark& remark);

}  // namespace fractus
