// The definition of cross entropy, evaluated for a whole call on plain arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "contracts/array.h"
#include "oracle/cross_entropy.h"
#include "oracle/expected.h"

namespace fractus::oracle::cross_entropy {

struct Question {
  DType dtype = DType::float32;              // float32 or float64: the judged type
  std::vector<std::optional<Array>> inputs;  // h (N,d), W (V,d), targets (N) in [0,V): all present, nothing empty
  const std::vector<std::optional<Array>>* borrowed = nullptr;  // in the place of inputs, which take half a gigabyte
  std::optional<Array> cotangent;                               // of the loss, shape {}; absent: no gradients
  std::int64_t add_depth = 0;  // the longest chain of additions that the judged form declares of a sum over the
                               // vocabulary; 0: any order
  int threads = 1;
};

// A running maximum may rise this often in a row, at most; a form whose maximum rises more often (element by element,
// over logits that ascend) is outside of the class that the tolerance covers. Blocks of 1024 and more of a vocabulary
// of 50257 rise less often than this on any input.
inline constexpr std::int64_t most_rescalings = 64;

// Companion over the whole call: outputs {loss}, gradients {dh, dW, absent for targets}. Inside the tolerance: every
// order of the sums, any blocks of rows and of the vocabulary, online or in two passes; exp and log good to 2 units in
// the last place, in powers of e or of two; p as exp(y - l) or as a quotient; the one-hot taken from p or from the
// products; g and 1/N applied anywhere after. Not inside: log sum exp + a - x_target where the shift a is large, since
// the shift is part of the definition. Throws std::invalid_argument for a target outside [0,V), an empty tensor or
// shapes that do not fit each other.
// Time, gradients included, at N 256, d 1280, V 50257 in float32: 4.2 s of processor time and 1.2 GB, of which the
// answer is 1 GB. float64 has its products in long double, at a fiftieth of that speed.
Expected expected(const Question& question);

// Which tensors every correct kernel computes without rounding, and their values: logits that differ by 0 or by so
// much that exp gives 0, and a power of two of them on. The log of their number rounds, so with more than one logit on
// the loss does; and so does p as exp(y - l), the one that a log-softmax takes: Probability::exponential certifies for
// every form, Probability::quotient for those that divide exp(y) by the sum (or multiply by its reciprocal).
// Time: 3 ns for each of the N d V terms of the logits.
struct Exactness {
  std::vector<std::optional<std::vector<double>>> outputs;    // loss; absent where some order may round
  std::vector<std::optional<std::vector<double>>> gradients;  // dh, dW, absent for targets; empty without a cotangent
  double fullness = 0;  // the largest |intermediate| in units of its grid, over 2^significand_bits
};
Exactness exactness(const Question& question, Probability probability = Probability::exponential);

}  // namespace fractus::oracle::cross_entropy
