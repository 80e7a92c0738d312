// Reading JSON that a person may have edited: an error names the field, what was wanted and what was got.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace fractus {

template <class T>
T field(const nlohmann::json& json, const char* name) {
  if (!json.is_object())
    throw std::invalid_argument("wanted an object with the field '" + std::string(name) + "', got " + json.type_name());
  const auto found = json.find(name);
  if (found == json.end()) throw std::invalid_argument("field '" + std::string(name) + "' is missing");
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("field '" + std::string(name) + "' has the wrong type or an element of one: got " +
                                found->dump().substr(0, 80));
  }
}

}  // namespace fractus
