// The ledger of what was actually run: a verdict rests on classes of cases, and a plan that missed one is not trusted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "properties/property.h"

namespace fractus {

struct Coverage {
  std::map<std::string, std::int64_t> cases;  // by class; a class that has to be there and is not stands at 0
  std::map<DType, Dims>
      largest;  // by dtype, the largest value of each extent by itself with which numbers were compared

  std::vector<std::string> missing() const;
};

// Every class that a complete run of this kernel must hold, at 0.
Coverage blank_coverage(const Driver& driver, const PlanSettings& settings);

void count(Coverage& coverage, const Driver& driver, const PlanSettings& settings, const Case& c,
           const Outcome& outcome);

}  // namespace fractus
