// Which bytes a run was about: those that were loaded, not those that a path holds later.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "attest/digest.h"
#include "harness/plan.h"
#include "reports/statement.h"

namespace fractus {

// A file or folder that the user binds beside what was seen to be loaded, such as a kernel's whole package.
struct Given {
  std::filesystem::path path;
  attest::Digest digest;  // before the run
};

std::vector<Given> given_from(const std::vector<std::string>& paths);  // throws what attest/digest.h throws

// After the run. A candidate's files are subjects named by their paths in the folder that holds them all; forms of the
// build lie in fractus-worker, so that is their subject. A given folder stands for all that is in it, and must hold
// every file of the candidate. Throws std::runtime_error where a file has other bytes now than when it was loaded, or
// where what was loaded has no bytes that could be bound: nothing may be signed then.
Bytes bytes_of(const Workshop& workshop, const Plan& plan, const std::vector<Given>& given);

}  // namespace fractus
