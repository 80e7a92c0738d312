// JSON from outside, where the meaning of every byte matters.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace fractus::attest {

struct JsonLimits {
  std::size_t bytes = 16 << 20;
  std::size_t values = 2'000'000;
  int depth = 64;
};

// Refuses a name that stands twice in an object: of two readers one may take the first and the other the last. Throws
// std::runtime_error that begins with `what`, the text's name in errors.
nlohmann::json strict_json(std::string_view text, const std::string& what, const JsonLimits& limits = {});

}  // namespace fractus::attest
