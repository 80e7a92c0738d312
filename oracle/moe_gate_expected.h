// The definition of the gate, evaluated for a whole call on plain arrays.
#pragma once

#include <optional>
#include <vector>

#include "contracts/array.h"
#include "oracle/expected.h"

namespace fractus::oracle::moe_gate {

struct Question {
  DType dtype = DType::float32;                  // float32 or float64: the judged type
  std::vector<std::optional<Array>> inputs;      // phases (B,T,P), expert_phases (E): both present, nothing empty
  double kappa = 0, temperature = 1;             // any whose quotient is finite and at most 80
  std::size_t top_k = 1;                         // in [1, E]
  std::vector<std::optional<Array>> cotangents;  // of gates, topk_idx (never given), topk_weights, lb; all absent (or
                                                 // none given): no gradients
  const std::vector<Array>* answered = nullptr;  // the judged form's outputs: they settle the choices and their order
  int threads = 1;
};

// Companion over the whole call: outputs {gates, topk_idx, topk_weights, lb}, gradients {dphases, absent}.
//
// Inside the tolerance: any order of the sums; theta from atan2, or the unit vector over its length; cosines of
// differences, or the rotated product; exp and a division, or a softmax in logs; the adjoint of each. topk_idx is the
// form's own row where that is a right selection of distinct experts, in the form's order, and the definition's where
// it is none; weights and gradients are those of that selection. Without `answered` a token whose selection is in doubt
// has no bound on topk_idx, weights and gradients, and all others have them in the definition's order.
//
// Where sum sin and sum cos may both be 0, gates, weights and lb have no bound, any selection is right, and the
// gradient has no value: it is NaN, and a form's may be. The other tokens keep their bounds, since a gate lies in [0,
// 1] whatever theta is. choices_in_doubt counts tokens.
//
// Throws std::invalid_argument for an empty tensor, shapes that do not fit each other or a top_k outside of [1, E].
// Time: 25 ms of processor time at B 1, T 128, P 16, E 128 in float32, gradients included.
Expected expected(const Question& question);

}  // namespace fractus::oracle::moe_gate
