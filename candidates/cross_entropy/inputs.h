// What the candidates of cross_entropy do alike around their own sums: which calls they take, rows in chunks, and a
// backward that can be run again but not be differentiated.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include "contracts/cross_entropy.h"
#include "contracts/form.h"

namespace fractus::cross_entropy {

struct Inputs {
  at::Tensor h, W, targets;
  std::int64_t chunk;  // rows at a time, from 1 to N
};

// Throws std::invalid_argument that names the argument, what was wanted and what was got: an empty tensor, a ce_chunk
// that is no whole number of 0 or more, a target outside [0,V), by row.
Inputs checked(const Tensors& inputs, const Scalars& scalars);

// Throws std::invalid_argument that names tensor and row, where the loss is not finite because h or W is not. That h is
// searched only then misses nothing: a number that is not finite in h makes every logit of its row infinite or NaN, the
// largest of them too, and infinity minus itself is NaN (IEEE 754, 7.2). Logits that overflow are no error.
void require_finite(const Inputs& in, const at::Tensor& loss);

// The rows [first, first + count) of one chunk.
struct Rows {
  std::int64_t first, count;
  at::Tensor of(const at::Tensor& tensor) const { return tensor.narrow(0, first, count); }
};

std::vector<Rows> chunks(std::int64_t rows, std::int64_t chunk);

// Marks the gradients that leave a hand-written backward, where a graph of the backward itself is recorded: going back
// through them to h, W or the cotangent is a runtime_error that says so, instead of a gradient of 0.
void forbid_second_derivative(const at::Tensor& dh, const at::Tensor& dW, const at::Tensor& h, const at::Tensor& W,
                              const at::Tensor& cotangent);

}  // namespace fractus::cross_entropy
