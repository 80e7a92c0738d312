// Time and memory of the forms of cross_entropy at the training run's width and vocabulary, forward and both gradients,
// beside those of `dense` in the same run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "harness/process.h"

namespace fractus::bench {

struct LossCell {
  std::string form;
  std::int64_t rows = 0, ce_chunk = 0;
  std::string status = "ok";  // or what ended it
  double seconds = 0, forward_seconds = 0;
  double peak_mb = 0;  // torch's allocator; inputs, loss and gradients not counted
};

// d 1280, V 50257, float32, all gradients: logits of a standard deviation near 1, as a model at the start of its
// training has them. Form, ce_chunk and threads are the caller's to set.
Call loss_call(std::int64_t rows);

// One round after the other, in each every form once, so that a drift of the machine meets all of them; medians. A cell
// whose `dense` the machine has no room for is left out, and its status says so.
std::vector<LossCell> measure_cross_entropy(const Workshop& workshop, int threads,
                                            const std::function<void(const LossCell&)>& done);

// The cell of `dense` with as many rows; nullptr where it did not finish.
const LossCell* dense_beside(const std::vector<LossCell>& cells, const LossCell& cell);

}  // namespace fractus::bench
