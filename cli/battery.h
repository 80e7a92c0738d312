// Functions that somebody wrote to be wrong or right, from their file to what the plan makes of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "harness/battery.h"

namespace fractus::cli {

// A file, the kernel that it is for, and its functions.
struct Source {
  std::filesystem::path file;
  const Driver* driver = nullptr;
  std::vector<std::string> functions;  // controls first: they are put to every case, and what they need is expected
};

// Of the file or the folder in options.file. Throws UsageError where there is nothing to run.
std::vector<Source> sources(Workshop& workshop, const Options& options);

struct Ran {
  Plan plan;
  BatteryResult result;
};

// Puts them through their kernel's plan.
Ran run(Workshop& workshop, const Source& source, const Options& options);

bool is_mutant(const std::string& function);  // else it is a control
std::string function_of(const Tried& tried);

// By a case: a function that cannot be loaded shows nothing of the plan.
bool killed(const Tried& tried);
bool accepted(const Tried& tried);

}  // namespace fractus::cli
