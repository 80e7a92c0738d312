// What a verdict was reached on.
#pragma once

#include <map>
#include <string>

namespace fractus {

// cpu, cores, system, compiler, torch.
std::map<std::string, std::string> this_machine();

}  // namespace fractus
