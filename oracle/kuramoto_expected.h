// The definition of the oscillators, evaluated for a whole call on plain arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "contracts/array.h"
#include "oracle/expected.h"

namespace fractus::oracle::kuramoto {

struct Question {
  DType dtype = DType::float32;              // float32 or float64: the judged type
  std::vector<std::optional<Array>> inputs;  // hidden (B,T,d), omega (P), coupling_u (P,r), coupling_lambda (r)
  std::int64_t n_steps = 1;
  double dt = 0, damping = 0;
  std::optional<Array> cotangent;         // of theta (B,T,P); absent: no gradients
  const Array* answered_theta = nullptr;  // the judged form's own, which settles wraps in doubt; may be null
  int threads = 1;
};

// Companion over the whole call: outputs {theta}, gradients {dhidden, domega, dcoupling_u, dcoupling_lambda}. Inside
// the tolerance: every order of the sums; the coupling by U, by K = U diag(lambda) U^T, by sines of differences or by
// complex numbers; the stages weighted and summed in any order; sin and cos as companion_functions.h asks for them.
//
// Every wrap is a decision. A token where one is in doubt counts in choices_in_doubt, and is judged on the branch that
// is nearest to its answered_theta; choices_flipped counts those where this is not the definition's own, and flip_moves
// is the most by which any branch moves an angle on the circle. Without answered_theta an angle that a choice in doubt
// reaches has no tolerance, and gradients are hulls of those of all branches. A token with more than 8 branches, and an
// angle known no better than to half a turn, has no tolerance; nor have then the gradients it takes part in.
//
// Throws std::invalid_argument for inputs that are missing or do not fit each other, P, r or d of 0, or n_steps below
// 0. Time, gradients included, at B 1, T 128, P 16, r 8, d 1280, n_steps 1 in float32: 0.12 s of
// processor time, and 0.4 s in float64; twice that where a wrap of each token is in doubt.
Expected expected(const Question& question);

}  // namespace fractus::oracle::kuramoto
