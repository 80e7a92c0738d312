// From a plan to a result: every case is put to the candidate, to the form it is held against where there is one, to
// the known-good forms, which set the tighter line, and to the known-wrong ones, which measure what the plan can see.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "harness/plan.h"
#include "reports/result.h"

namespace fractus {

struct Progress {
  std::string property;
  std::size_t done = 0, total = 0;
  double seconds = 0;
};

struct JudgeSettings {
  std::chrono::duration<double> budget{240};
  std::vector<std::string> waived;
  bool partial = false;                           // the user left properties out
  std::filesystem::path fixtures;                 // where a shrunk failure is kept
  std::function<void(const Progress&)> progress;  // called about ten times a second
};

// Runs the plan. What the candidate does ends as a verdict; exceptions are failures of our own.
Result judge(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings);

}  // namespace fractus
