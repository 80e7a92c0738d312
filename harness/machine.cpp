#include "harness/machine.h"

#include "attest/machine.h"

namespace fractus {

std::map<std::string, std::string> machine_of_run() {
  attest::Machine machine = attest::this_machine();
  machine["compiler"] = FRACTUS_COMPILER;
  machine["flags"] = FRACTUS_FLAGS;
  machine["torch"] = FRACTUS_TORCH_VERSION;
  machine["cuda"] = FRACTUS_TORCH_CUDA;
  return machine;
}

}  // namespace fractus
