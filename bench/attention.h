// Time and memory of every right form at the training run's shapes: the table of a change from one form to another.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/process.h"

namespace fractus::bench {

struct Cell {
  std::string form;
  std::int64_t batch = 0;
  std::string status = "ok";  // or what ended it
  double forward_ms = 0, forward_backward_ms = 0;
  double resident_mb = 0;  // peak of the cell's process, forward and backward
};

// A process of its own for each cell; a cell that dies leaves the table standing.
std::vector<Cell> measure_attention(const Workshop& workshop, int threads, int runs,
                                    const std::function<void(const Cell&)>& done);

// The cell of `einsum` at the same batch; nullptr where it did not finish.
const Cell* einsum_beside(const std::vector<Cell>& cells, const Cell& cell);

}  // namespace fractus::bench
