// What a verdict was reached on.
#pragma once

#include <map>
#include <string>

namespace fractus {

// This machine (attest/machine.h), and of this build: compiler, flags, torch and the CUDA version that torch was built
// for.
std::map<std::string, std::string> machine_of_run();

}  // namespace fractus
