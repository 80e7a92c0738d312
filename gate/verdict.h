// Is the verdict that was signed one that the policy lets pass?
#pragma once

#include <nlohmann/json.hpp>

#include "gate/instant.h"
#include "gate/policy.h"
#include "gate/refusal.h"

namespace fractus::gate {

// Kernel, contract, verdict, what the plan was for and how much of it was run, and what it is known to see.
Answer verdict_admitted(const Policy& policy, const nlohmann::json& predicate);

// `issued` and `expires` against the clock.
Answer age_admitted(const Policy& policy, const nlohmann::json& predicate, Instant clock);

}  // namespace fractus::gate
