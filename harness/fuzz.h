// Random cases until the time is up: bounded search beyond the plan.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "harness/judge.h"
#include "harness/plan.h"

namespace fractus {

struct FuzzSettings {
  std::chrono::duration<double> budget{600};
  std::int64_t most_cases = 0;  // 0: as many as the budget allows
  std::vector<std::string> waived;
  std::filesystem::path fixtures;
  std::function<void(std::int64_t cases, double seconds)> progress;
};

struct FuzzResult {
  std::int64_t cases = 0;
  std::map<std::string, std::int64_t> by_property;
  Coverage by_class;
  std::int64_t elements = 0, undecidable = 0;
  std::map<std::string, double> worst_ratio;
  std::optional<PropertyResult> failure;  // the first, shrunk
  double seconds = 0;
};

// Draws from the properties of the request, in turn, everything following from the plan's seed. Ends at the first
// failure. known-good and known-wrong forms are not run.
FuzzResult fuzz(const Workshop& workshop, const Driver& driver, const Plan& plan, const FuzzSettings& settings);

}  // namespace fractus
