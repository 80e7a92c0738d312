// Many functions through one kernel's plan: known-wrong and known-right ones that somebody else wrote, as the measure
// of what the plan sees and of what it refuses. What is expected of a case is computed once for all of them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "harness/judge.h"
#include "harness/plan.h"
#include "reports/result.h"

namespace fractus {

struct BatterySettings {
  std::chrono::duration<double> budget{300};
  std::vector<std::string> waived;
  std::filesystem::path fixtures;                 // where shrunk failures are kept
  std::function<void(const Progress&)> progress;  // before each case
};

// What became of one function.
struct Tried {
  std::string candidate;  // its spelling, path/file.py:function
  std::string summary;
  Verdict verdict = Verdict::undecided;  // EQUIVALENT, DIFFERENT, FAILED, or UNDECIDED with the reason
  std::string property;                  // which found it first; "loading" where the file or the function cannot be had
  std::optional<Finding> finding;        // shrunk
  std::optional<Witness> witness;
  std::string reason;
  std::int64_t cases = 0;  // that it was put to
  double seconds = 0;      // its own: loading, its calls, their comparison and shrinking
};

struct BatteryResult {
  std::vector<Tried> functions;         // in the order that was asked for
  std::vector<std::string> complaints;  // a known-good form of this build that breaks its contract
  std::int64_t cases = 0;               // of the plan that were run before every function was decided
  bool out_of_budget = false;
  double seconds = 0;
};

// `candidates` are spellings of functions from outside. Each is put to the cases of the plan until one shows a
// difference.
BatteryResult battery(Workshop& workshop, const Driver& driver, const Plan& plan,
                      const std::vector<std::string>& candidates, const BatterySettings& settings);

}  // namespace fractus
