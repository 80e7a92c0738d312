// May this code be loaded? Nothing here knows how a verdict is made: it reads a signed statement and bytes.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gate/artifacts.h"
#include "gate/instant.h"
#include "gate/machine_class.h"
#include "gate/policy.h"
#include "gate/refusal.h"

namespace fractus::gate {

// What every envelope is judged by.
struct Circumstances {
  Policy policy;
  Facts machine;  // of the machine that will load the code
  Instant clock;
};

struct Admission {
  Answer answer;
  std::vector<std::string> not_looked_at;  // checks that an envelope without a good signature leaves nothing for
  std::vector<Artifact> artifacts;
  std::string keyid;         // of the key that signed; empty where none of the policy's did
  nlohmann::json predicate;  // null where nothing that was said can be relied on
};

// All refusals, not the first alone. Only what one of the policy's keys has signed is looked at: of a text that nobody
// vouches for even a refusal would be hearsay, and what it says could lead a reader astray.
Admission admit(const Circumstances& circumstances, const std::filesystem::path& envelope,
                const std::vector<std::filesystem::path>& artifacts);

}  // namespace fractus::gate
