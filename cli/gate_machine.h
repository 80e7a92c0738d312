// The facts of the machine that will load the code, for the gate.
#pragma once

#include <string>

#include "gate/machine_class.h"

namespace fractus::cli {

struct Loader {
  gate::Facts facts;
  std::string torch;  // the folder that torch and cuda were read from; empty where there was none
};

// `machine` is "auto" or a JSON file, `torch` the folder of torch that the code will be loaded beside, or empty: then
// that of the Python on PATH, or of this checkout where that has none. Nothing is run and no library is loaded. Throws
// UsageError.
Loader loading_machine(const std::string& machine, const std::string& torch);

}  // namespace fractus::cli
