// Reading JSON that a person may have edited: an error names the field, what was wanted and what was got.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fractus {

// The library turns 1.5 into 1 and 2^40 into whatever int makes of it. A whole number here is one that fits.
template <class T>
struct Fits {
  static bool test(const nlohmann::json&) { return true; }
};
template <std::integral T>
requires(!std::same_as<T, bool>) struct Fits<T> {
  static bool test(const nlohmann::json& json) {
    if (!json.is_number_integer()) return false;
    return json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                     : std::in_range<T>(json.get<std::int64_t>());
  }
};
template <class T>
struct Fits<std::vector<T>> {
  static bool test(const nlohmann::json& json) {
    return json.is_array() && std::all_of(json.begin(), json.end(), Fits<T>::test);
  }
};
template <class T>
struct Fits<std::map<std::string, T>> {
  static bool test(const nlohmann::json& json) {
    return json.is_object() && std::all_of(json.begin(), json.end(), Fits<T>::test);
  }
};

template <class T>
T field(const nlohmann::json& json, const char* name) {
  if (!json.is_object())
    throw std::invalid_argument("wanted an object with the field '" + std::string(name) + "', got " + json.type_name());
  const auto found = json.find(name);
  if (found == json.end()) throw std::invalid_argument("field '" + std::string(name) + "' is missing");
  try {
    if (Fits<T>::test(*found)) return found->get<T>();
  } catch (const nlohmann::json::exception&) {
  }
  throw std::invalid_argument("field '" + std::string(name) + "' has the wrong type or an element of one: got " +
                              found->dump().substr(0, 80));
}

}  // namespace fractus
