// Measurements: ratios within one run, never a test.
#pragma once

#include "cli/commands.h"

namespace fractus::cli {

// `bench oracle` and `bench attention`; see docs/ for what they print.
int bench(const Options& options);

}  // namespace fractus::cli
