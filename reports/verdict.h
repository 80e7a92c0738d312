// The verdict of a result, from what was counted. A run and shards that are put together are judged by this one
// function.
#pragma once

#include <string>
#include <vector>

#include "reports/result.h"

namespace fractus {

struct Quarantine {
  std::string property, reason;
};

// Lines over which the candidate is well beyond the known-good forms (DESIGN.md, property 3): for a person to look at.
std::vector<Quarantine> exceeded(const Lines& lines);

// Sets the verdict and the reason of every property, those of the reference, and the result's own. Everything else of
// the result is given, and none of the former verdicts and reasons counts.
void conclude(Result& result);

}  // namespace fractus
