#include "gate/members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace fractus::gate {

using nlohmann::json;

std::string shown(const std::string& text) {
  constexpr std::size_t most = 200;
  return text.size() <= most ? text : fmt::format("{}... ({} bytes)", text.substr(0, most), text.size());
}

std::string shown(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return "none";
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) first.push_back(shown(names[i]));
  std::string text = fmt::format("{}", fmt::join(first, ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

const json* Members::find(const char* name, bool (*is)(const json&), const char* wanted) const {
  const auto found = object_.find(name);
  if (found != object_.end() && is(*found)) return &*found;
  answer_.refusals.push_back({check_,
                              fmt::format("the statement's '{}{}': wanted {}, got {}", prefix_, name, wanted,
                                          found == object_.end() ? "none" : found->type_name()),
                              "sign a new verdict with a version of fractus-verify that this gate knows"});
  return nullptr;
}

std::optional<std::string> Members::text(const char* name) const {
  const json* found = find(
      name, [](const json& j) { return j.is_string(); }, "a text");
  return found == nullptr ? std::nullopt : std::optional(found->get<std::string>());
}

std::optional<std::int64_t> Members::count(const char* name) const {
  const auto is_count = [](const json& j) {
    return j.is_number_unsigned()
               ? j.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
               : j.is_number_integer() && j.get<std::int64_t>() >= 0;
  };
  const json* found = find(name, is_count, "a whole number of 0 or more");
  return found == nullptr ? std::nullopt : std::optional(found->get<std::int64_t>());
}

std::optional<bool> Members::truth(const char* name) const {
  const json* found = find(
      name, [](const json& j) { return j.is_boolean(); }, "true or false");
  return found == nullptr ? std::nullopt : std::optional(found->get<bool>());
}

std::optional<std::vector<std::string>> Members::texts(const char* name) const {
  const auto are_texts = [](const json& j) {
    return j.is_array() && std::all_of(j.begin(), j.end(), [](const json& one) { return one.is_string(); });
  };
  const json* found = find(name, are_texts, "a list of texts");
  return found == nullptr ? std::nullopt : std::optional(found->get<std::vector<std::string>>());
}

const json* Members::object(const char* name) const {
  return find(
      name, [](const json& j) { return j.is_object(); }, "an object");
}

const json* Members::list(const char* name) const {
  return find(
      name, [](const json& j) { return j.is_array(); }, "a list");
}

}  // namespace fractus::gate
