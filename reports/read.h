// A result read back from its JSON form: what the other views, and a merge of shards, are made from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "reports/result.h"

namespace fractus {

// Every member that to_json writes, so that to_json(result_from(json)) holds the same. Members that this version does
// not know are passed over; one that follows from others has to agree with them. Throws std::runtime_error that names
// the member, what was wanted and what was got.
Result result_from(const nlohmann::json& json);

// Of a file's text: bounded in size, depth and number of values, and no name twice in an object. `name` is the file's.
Result result_from_text(std::string_view text, const std::string& name);

}  // namespace fractus
