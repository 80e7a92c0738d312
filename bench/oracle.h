// The oracle against the reference that production replaced: both give forward and all five gradients of one live
// batch.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "harness/process.h"

namespace fractus::bench {

struct OracleFigures {
  double oracle_seconds = 0, einsum_seconds = 0;  // medians of interleaved runs
  double extra_mb = 0, einsum_extra_mb = 0;       // peak resident memory above that with the inputs in place
  int threads = 1;
  double ratio() const { return oracle_seconds / einsum_seconds; }
};

// Throws std::runtime_error where a measurement fails.
OracleFigures measure_oracle(const Workshop& workshop, int rounds);

}  // namespace fractus::bench
