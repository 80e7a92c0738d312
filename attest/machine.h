// The facts of a machine that a verdict is bound to, and that the gate asks of the machine it stands on.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace fractus::attest {

using Machine = std::map<std::string, std::string>;

// cpu: its model; cpu_features: the vector and matrix extensions that numerical libraries dispatch on, sorted and
// separated by spaces; cores; system; and where NVIDIA's kernel driver is loaded, gpu: the models, and driver: its
// version. What is not to be read is "unknown". `proc` is for tests.
Machine this_machine(const std::filesystem::path& proc = "/proc");

// torch: its version; cuda: the CUDA version that it was built for, or "none". Read from the text of version.py in
// torch's folder (site-packages/torch); nothing is run. Throws std::runtime_error where that holds no version.
Machine torch_in(const std::filesystem::path& folder);

}  // namespace fractus::attest
