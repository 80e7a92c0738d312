// The definition of the mixture of experts, evaluated for a whole call on plain arrays.
#pragma once

#include <optional>
#include <vector>

#include "contracts/array.h"
#include "oracle/expected.h"

namespace fractus::oracle::moe {

struct Question {
  DType dtype = DType::float32;                  // float32 or float64: the judged type
  std::vector<std::optional<Array>> inputs;      // under the contract's names, in its order; nothing empty
  double kappa = 0, temperature = 1;             // any whose quotient is finite and at most 80
  std::size_t top_k = 1;                         // in [1, E]
  std::vector<std::optional<Array>> cotangents;  // of out and lb; both absent (or none given): no gradients
  const std::vector<Array>* answered = nullptr;  // the judged form's outputs: they settle the choices
  int threads = 1;
};

// Companion over the whole call: outputs {out, lb}, gradients by input, absent where there is none.
//
// Inside the tolerance: the gate in the forms of moe_gate_expected.h; experts in any order of their sums, V U^T
// contracted first or last, scales and weights applied anywhere, one sum over all experts of a token or one each, all
// experts or those that were chosen; gelu in the forms of gelu.h; the adjoint of each.
//
// Where more than one selection of a token is right, out is that of the one nearest to the form's, and the gradients
// follow it; where the form's out fits several, as beside a weight of next to nothing, Expected::room has room for
// each. Nothing that the choice reaches has a bound (out and the gradients of h and phases at that token, and those of
// all experts that it may have been given) where theta is unknown, where more than most_selections are right, and
// without `answered`. choices_in_doubt counts tokens.
//
// Throws std::invalid_argument for tensors that are missing, empty or do not fit each other.
Expected expected(const Question& question);

}  // namespace fractus::oracle::moe
