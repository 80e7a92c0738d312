// The definition of a block, evaluated for a whole call on plain arrays.
#pragma once

#include <optional>
#include <vector>

#include "contracts/array.h"
#include "contracts/contract.h"
#include "oracle/expected.h"

namespace fractus::oracle::block_core {

struct Question {
  DType dtype = DType::float32;                  // float32 or float64: the judged type
  std::vector<std::optional<Array>> inputs;      // in the contract's order; T, B and d at least 1
  Scalars scalars;                               // all of the contract's
  std::vector<std::optional<Array>> cotangents;  // of out and lb; all absent (or none given): no gradients
  const std::vector<Array>* answered = nullptr;  // the judged form's outputs: they settle the choices
  int threads = 1;
};

// Companion over the whole call: outputs {out, lb, S, z, theta}, gradients by input, absent where the contract has
// none. Inside the tolerance: what the parts' own headers say, with LayerNorm in the forms of companion_layer_norm.h.
//
// theta is judged by the oscillators' rule: on the branch of the wraps nearest to the form's own. A sequence is routed
// by the form's own theta at its last token; where more than one selection is right, by the one whose out is nearest to
// the form's. Both count in choices_in_doubt, by token and by sequence, and so do rows of attention at the cut, which
// stand for both branches. Without `answered` a choice in doubt leaves without bound what it reaches.
//
// Throws std::invalid_argument for inputs that are missing or do not fit each other.
Expected expected(const Question& question);

}  // namespace fractus::oracle::block_core
