#include "gate/machine_class.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "attest/files.h"
#include "attest/strict_json.h"
#include "gate/members.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

// A text, or a list of texts as one with spaces between; nothing for anything else.
std::optional<std::string> fact_from(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> words;
  for (const json& one : value) {
    if (!one.is_string()) return std::nullopt;
    words.push_back(one.get<std::string>());
  }
  return fmt::format("{}", fmt::join(words, " "));
}

// A machine without a GPU says nothing of one, and a torch for no CUDA says "none". Nothing else may be left out: two
// machines of which nothing is known are not of one class.
std::string value_of(const Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  if (found != facts.end() && !found->second.empty()) return found->second;
  return name == "gpu" || name == "driver" ? "none" : "unknown";
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

// Empty where the rule holds; what is different otherwise.
std::string difference(Rule rule, const std::string& name, const std::string& wanted, const std::string& got) {
  if (wanted == "unknown" || got == "unknown")
    return fmt::format("{}: wanted {}, got {}; what is not known is not the same", name, shown(wanted), shown(got));
  if (name != "cpu_features")
    return wanted == got ? "" : fmt::format("{}: wanted {}, got {}", name, shown(wanted), shown(got));
  const std::set<std::string> there = words_of(wanted), here = words_of(got);
  std::vector<std::string> lacking, more;
  std::set_difference(there.begin(), there.end(), here.begin(), here.end(), std::back_inserter(lacking));
  std::set_difference(here.begin(), here.end(), there.begin(), there.end(), std::back_inserter(more));
  if (rule == Rule::superset) more.clear();
  if (lacking.empty() && more.empty()) return "";
  return fmt::format("cpu_features: wanted those of the verdict's machine{}; this one lacks {} and has {} beside them",
                     rule == Rule::superset ? " and any others" : " and no others", shown(lacking), shown(more));
}

}  // namespace

Answer machine_admitted(const Policy& policy, const json& predicate, const Facts& here) {
  const char* check = "machine";
  Answer answer;
  const json* machine = Members(predicate, check, answer).object("machine");
  if (machine == nullptr) return answer;
  Facts there;
  for (const auto& [name, value] : machine->items())
    if (const auto fact = fact_from(value)) there[name] = *fact;
  std::vector<std::string> same, open;
  for (const auto& [name, rule] : policy.machine) {
    (rule == Rule::any ? open : same).push_back(name);
    if (rule == Rule::any) continue;
    const std::string what = difference(rule, name, value_of(there, name), value_of(here, name));
    if (!what.empty())
      answer.refusals.push_back(
          {check, what,
           fmt::format("verify the candidate on a machine of the class that loads it; where '{}' cannot matter to it, "
                       "say so in the policy: [machine] {} = \"{}\"",
                       name, name, name == "cpu_features" ? "superset" : "any")});
  }
  if (answer.refusals.empty())
    answer.checked.push_back(
        {check, fmt::format("of the verdict's class by {}; not looked at: {}", shown(same), shown(open))});
  return answer;
}

Facts machine_from(const std::filesystem::path& file) {
  const std::string title = fmt::format("the machine '{}'", file.string());
  constexpr attest::JsonLimits limits{.bytes = 16 << 20, .values = 1'000'000, .depth = 32};
  json object = attest::strict_json(read_whole(file), title, limits);
  if (object.is_object() && object.contains("machine")) object = json(object.at("machine"));
  if (!object.is_object())
    throw std::runtime_error(fmt::format("{}: wanted an object of texts, got {}", title, object.type_name()));
  // What no policy knows by the usual names is ignored: a machine says more than a rule asks for.
  Facts facts;
  for (const auto& [name, value] : object.items()) {
    const auto fact = fact_from(value);
    if (!fact) throw std::runtime_error(fmt::format("{}: '{}': wanted a text, got {}", title, name, value.type_name()));
    facts[name] = *fact;
  }
  return facts;
}

}  // namespace fractus::gate
