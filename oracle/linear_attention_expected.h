// The definition of linear attention, evaluated for a whole call on plain arrays.
#pragma once

#include <optional>
#include <vector>

#include "contracts/array.h"
#include "oracle/expected.h"

namespace fractus::oracle::linear_attention {

struct Question {
  DType dtype = DType::float32;                  // float32 or float64: the judged type
  std::vector<std::optional<Array>> inputs;      // q, k, v (G,T,D), S0 (G,D,D), z0 (G,D); the last two may be absent
  std::vector<std::optional<Array>> cotangents;  // of y, S, z; all absent (or none given): no gradients
  const Array* answered_y = nullptr;             // the judged kernel's y: settles the rows that the interval cannot
  int threads = 1;
};

// Companion over all groups. A row in doubt follows answered_y; without it, or where y does not tell, it covers both.
// Time: about 3 ms a group and core at T 128, D 64 in float32, gradients included.
Expected expected(const Question& question);

// Which tensors every correct order of evaluation computes without rounding, and their values. Those may be compared
// bit for bit. The values are the lattice's own, in which the contract's epsilon has vanished as it does in the
// kernel's arithmetic.
struct Exactness {
  std::vector<std::optional<std::vector<double>>> outputs;    // y, S, z; absent where some order may round
  std::vector<std::optional<std::vector<double>>> gradients;  // q, k, v, S0, z0; empty without cotangents
  double fullness = 0;  // the largest |intermediate| in units of its grid, over 2^significand_bits
};
Exactness exactness(const Question& question);

}  // namespace fractus::oracle::linear_attention
