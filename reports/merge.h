// Shards of one plan, put together property by property.
#pragma once

#include <string>
#include <vector>

#include "reports/result.h"

namespace fractus {

struct Shard {
  std::string name;  // of its file, for errors
  Result result;
};

// One result, judged as a whole run is. It is whole where the shards hold every property of the complete plan between
// them, and each of them measured what it can see; else it stays partial and says what is missing. A property that two
// shards hold counts once, and its numbers have to agree. Throws std::runtime_error that lists everything in which the
// shards differ and may not, with both values.
Result merged(const std::vector<Shard>& shards);

}  // namespace fractus
