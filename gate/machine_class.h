// Is the machine that will load the code one of the class that the verdict was reached on?
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "gate/policy.h"
#include "gate/refusal.h"

namespace fractus::gate {

using Facts = std::map<std::string, std::string>;  // as attest::this_machine and attest::torch_in say them

// The predicate's `machine` against `here`, by the policy's rules.
Answer machine_admitted(const Policy& policy, const nlohmann::json& predicate, const Facts& here);

// Of a JSON file: an object of texts, or one that holds it as `machine`, as the gate's own JSON and a report's do.
// Throws std::runtime_error with file and fault.
Facts machine_from(const std::filesystem::path& file);

}  // namespace fractus::gate
