#include "gate/toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cmath>
#include <stdexcept>

namespace fractus::gate {
namespace {

// toml++ itself refuses a name that stands twice and what is nested more than 256 deep.
nlohmann::json json_from(const toml::node& node, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw std::runtime_error(fmt::format("{}: line {}: {}", name, node.source().begin.line, what));
  };
  switch (node.type()) {
    case toml::node_type::string: return node.as_string()->get();
    case toml::node_type::integer: return node.as_integer()->get();
    case toml::node_type::boolean: return node.as_boolean()->get();
    case toml::node_type::floating_point:
      if (!std::isfinite(node.as_floating_point()->get())) refuse("wanted a finite number");
      return node.as_floating_point()->get();
    case toml::node_type::array: {
      nlohmann::json list = nlohmann::json::array();
      for (const toml::node& element : *node.as_array()) list.push_back(json_from(element, name));
      return list;
    }
    case toml::node_type::table: {
      nlohmann::json object = nlohmann::json::object();
      for (const auto& [key, value] : *node.as_table()) object[std::string(key.str())] = json_from(value, name);
      return object;
    }
    default: refuse("a date or a time has no meaning here; spans are texts such as \"30d\"");
  }
  return {};  // not reached
}

}  // namespace

nlohmann::json json_from_toml(std::string_view text, const std::string& name) {
  try {
    return json_from(toml::parse(text, name), name);
  } catch (const toml::parse_error& error) {
    throw std::runtime_error(
        fmt::format("{}: line {}: it is no TOML: {}", name, error.source().begin.line, error.description()));
  }
}

}  // namespace fractus::gate
