// The oracle against each kernel's reference: both give the outputs and all gradients of one call of the training run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/process.h"

namespace fractus::bench {

struct OracleFigures {
  std::string kernel, reference;
  std::string size;                                  // of the call, in words
  double oracle_seconds = 0, reference_seconds = 0;  // medians of interleaved runs
  double extra_mb = 0, reference_extra_mb = 0;       // peak resident memory above that with the inputs in place
  double ratio() const { return oracle_seconds / reference_seconds; }
};

// Of linear attention and of cross entropy. `done` is told of each as soon as it is measured. Throws std::runtime_error
// where a measurement fails.
void measure_oracle(const Workshop& workshop, int rounds, int threads,
                    const std::function<void(const OracleFigures&)>& done);

}  // namespace fractus::bench
