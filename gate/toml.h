// TOML as JSON values, so that a policy has one reader for both.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fractus::gate {

// Texts, whole numbers, finite numbers, truth values, lists and tables. Throws std::runtime_error that begins with
// `name` for anything else, such as a date, and for what is no TOML.
nlohmann::json json_from_toml(std::string_view text, const std::string& name);

}  // namespace fractus::gate
