// The shared memory of one call, as the parent sees it: planning, filling, reading back, and checking that nothing was
// written where nothing may be. Values cross between doubles and the dtype in memory here.
#pragma once

#include <optional>
#include <vector>

#include "contracts/call.h"
#include "contracts/contract.h"
#include "harness/protocol.h"

namespace fractus {

// Where everything lies: guard | input | guard | ... | cotangent | guard | output | guard | gradient | guard.
struct RegionPlan {
  std::vector<std::optional<protocol::Placement>> inputs;
  std::vector<std::optional<protocol::Placement>> cotangents;
  std::vector<protocol::Placement> outputs;
  std::vector<std::optional<protocol::Placement>> gradients;  // by input; of those that the call asks for
  std::int64_t given_bytes = 0;                               // inputs and cotangents end here
  std::int64_t bytes = 0;
};

// Throws std::invalid_argument where the call does not fit the contract.
RegionPlan plan_region(const Contract& contract, const Call& call);

struct Region {
  protocol::Descriptor memory;
  protocol::Mapping mapping;
  std::vector<std::byte> given;  // what inputs and cotangents were, to compare with afterwards
};

// Poisons everything, then writes inputs and cotangents.
Region fill_region(const RegionPlan& plan, const Call& call);

// Breaches of kind modified-input and guard.
std::vector<Breach> compare_given(const RegionPlan& plan, const Region& region);

Array read_tensor(const protocol::Mapping& mapping, const protocol::Placement& placement);

// The first element that still is poison, as an index text such as "[0, 3, 1]"; empty where there is none.
std::string first_unwritten(const protocol::Mapping& mapping, const protocol::Placement& placement);

}  // namespace fractus
