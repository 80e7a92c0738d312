#include "attest/strict_json.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <vector>

namespace fractus::attest {

nlohmann::json strict_json(std::string_view text, const std::string& what, const JsonLimits& limits) {
  using nlohmann::json;
  const auto fail = [&what](const std::string& why) { throw std::runtime_error(fmt::format("{}: {}", what, why)); };
  if (text.size() > limits.bytes) fail(fmt::format("it is larger than {} bytes", limits.bytes));
  // The parser takes it for the end of the text.
  if (text.find('\0') != std::string_view::npos) fail("it holds a zero byte, which no JSON does");
  std::vector<std::set<std::string>> names;  // of the objects that are open
  std::size_t values = 0;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    // The parser itself keeps no stack of calls, but who walks what it made does.
    if (depth > limits.depth) fail(fmt::format("it is nested more than {} deep", limits.depth));
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second)
      fail(fmt::format("the name {} stands twice in one object", parsed.dump()));
    if (event != json::parse_event_t::object_end && event != json::parse_event_t::array_end && ++values > limits.values)
      fail(fmt::format("it holds more than {} values", limits.values));
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    fail(fmt::format("it is no JSON: {}", error.what()));
  }
  return {};  // not reached
}

}  // namespace fractus::attest
