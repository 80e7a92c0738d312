// The training run's own call of linear attention, as the measurements use it.
#pragma once

#include <string>

#include "contracts/call.h"
#include "properties/driver.h"

namespace fractus::bench {

// G 40 a sequence, T 128, D 64, carry active, ordinary features; with cotangents of all outputs where `backward`.
inline Call live_call(const std::string& form, std::int64_t batch, bool backward, int threads) {
  const Driver& driver = *find_driver("linear_attention");
  Case c;
  c.kernel = driver.contract->kernel;
  c.dims = driver.live;
  c.dims["G"] = 40 * batch;
  c.fill = driver.smooth_fills.front();
  c.seed = 1;
  if (backward)
    for (const TensorSpec& output : driver.contract->outputs) c.cotangents.push_back(output.name);
  const Problem problem = driver.fill(c);
  return {.kernel = c.kernel,
          .form = form,
          .inputs = problem.inputs,
          .cotangents = problem.cotangents,
          .gradients = std::vector<bool>(problem.inputs.size(), backward),
          .threads = threads};
}

}  // namespace fractus::bench
