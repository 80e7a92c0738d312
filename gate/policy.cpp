#include "gate/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <stdexcept>

#include "attest/files.h"
#include "attest/nearest.h"
#include "attest/strict_json.h"
#include "gate/instant.h"
#include "gate/toml.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

constexpr const char* format = "fractus-verify policy 1";
constexpr std::size_t most_bytes = 1 << 20, most_keys = 64;
constexpr attest::JsonLimits limits{.bytes = most_bytes, .values = 100'000, .depth = 8};
constexpr std::chrono::seconds most_skew{600};  // a clock that is further off is wrong, and is to be set

constexpr std::array<std::pair<Rule, const char*>, 3> rules{
    {{Rule::same, "same"}, {Rule::superset, "superset"}, {Rule::any, "any"}}};

// What an error shows of a value, however long it is.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

[[noreturn]] void refuse(const std::string& member, const std::string& wanted, const json& got) {
  throw std::runtime_error(fmt::format("'{}': wanted {}, got {}", member, wanted, shown(got)));
}

std::string text_of(const std::string& member, const json& value) {
  if (!value.is_string()) refuse(member, "a text", value);
  return value.get<std::string>();
}

bool truth_of(const std::string& member, const json& value) {
  if (!value.is_boolean()) refuse(member, "true or false", value);
  return value.get<bool>();
}

std::int64_t count_of(const std::string& member, const json& value) {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  const bool whole = value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{1} << 53
                                                : value.is_number_integer() && value.get<std::int64_t>() <= most;
  if (!whole || value.get<std::int64_t>() < 1) refuse(member, "a whole number of 1 or more", value);
  return value.get<std::int64_t>();
}

std::vector<std::string> texts_of(const std::string& member, const json& value) {
  if (!value.is_array()) refuse(member, "a list of texts", value);
  std::vector<std::string> texts;
  for (const json& one : value) {
    texts.push_back(text_of(member, one));
    if (texts.back().empty()) refuse(member, "texts that are not empty", value);
  }
  return texts;
}

std::set<std::string> set_of(const std::string& member, const json& value) {
  const auto texts = texts_of(member, value);
  return {texts.begin(), texts.end()};
}

// A digest that is cut short, or has a slip of the pen in it, would revoke nothing.
std::set<std::string> digests_of(const std::string& member, const json& value) {
  std::set<std::string> digests = set_of(member, value);
  for (const std::string& digest : digests)
    if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos)
      refuse(member, "digests of 64 lower-case hex digits", digest);
  return digests;
}

std::chrono::seconds span_of(const std::string& member, const json& value) {
  const auto span = span_from(text_of(member, value));
  if (!span) refuse(member, "a span such as \"90s\", \"10m\", \"12h\" or \"30d\"", value);
  return *span;
}

std::string one_of(const std::string& member, const json& value, const std::vector<std::string>& known) {
  const std::string text = text_of(member, value);
  if (std::find(known.begin(), known.end(), text) == known.end())
    throw std::runtime_error(fmt::format("'{}': unknown value '{}'; {}", member, text, nearest_text(text, known)));
  return text;
}

Rule rule_of(const std::string& member, const json& value, bool is_list) {
  std::vector<std::string> known;
  for (const auto& [rule, name] : rules)
    if (rule != Rule::superset || is_list) known.push_back(name);
  const std::string text = one_of(member, value, known);
  return std::find_if(rules.begin(), rules.end(), [&](const auto& r) { return text == r.second; })->first;
}

attest::PublicKey key_of(const std::string& text, const std::filesystem::path& folder) {
  if (text.starts_with("-----BEGIN")) return attest::public_from(text, "keys: a PEM text");
  return attest::read_public(folder / text);
}

struct Reader {
  Policy policy;
  std::filesystem::path folder;
  std::vector<attest::PublicKey> named;  // under `keys`, revoked or not

  void read_keys(const std::string& member, const json& value) {
    const auto texts = texts_of(member, value);
    if (texts.empty() || texts.size() > most_keys)
      throw std::runtime_error(fmt::format("'{}': wanted 1 to {} keys, got {}", member, most_keys, texts.size()));
    for (const std::string& text : texts) named.push_back(key_of(text, folder));
  }

  void read_kernels(const std::string& member, const json& value) {
    if (!value.is_object() || value.empty()) refuse(member, "a table with a contract's version by kernel", value);
    for (const auto& [kernel, version] : value.items())
      policy.kernels[kernel] = count_of(member + "." + kernel, version);
  }

  void read_forms(const std::string& member, const json& value) {
    policy.forms = set_of(member, value);
    if (policy.forms->empty()) refuse(member, "forms such as \"kernels.py:attention\"; leave it out for any", value);
  }

  void read_dtypes(const std::string& member, const json& value) {
    policy.dtypes.clear();
    for (const json& one : value.is_array() ? value : json::array({value}))
      policy.dtypes.insert(one_of(member, one, {"float32", "float64"}));
    if (policy.dtypes.empty()) refuse(member, "float32, float64 or both", value);
  }

  void read_share(const std::string& member, const json& value) {
    if (!value.is_number() || !(value.get<double>() >= 0) || !(value.get<double>() <= 1))
      refuse(member, "a share between 0 and 1", value);
    policy.largest_undecidable_share = value.get<double>();
  }

  void read_skew(const std::string& member, const json& value) {
    policy.clock_skew = span_of(member, value);
    if (policy.clock_skew > most_skew) refuse(member, fmt::format("at most {}", to_text(most_skew)), value);
  }

  void read_machine(const std::string& member, const json& value) {
    if (!value.is_object()) refuse(member, "a table", value);
    std::vector<std::string> known;
    for (const auto& [fact, rule] : policy.machine) known.push_back(fact);
    for (const auto& [fact, rule] : value.items()) {
      if (!policy.machine.contains(fact))
        throw std::runtime_error(fmt::format("unknown fact '{}.{}'; {}", member, fact, nearest_text(fact, known)));
      policy.machine[fact] = rule_of(member + "." + fact, rule, fact == "cpu_features");
    }
  }
};

using Read = std::function<void(Reader&, const std::string&, const json&)>;

const std::map<std::string, Read>& members() {
  static const std::map<std::string, Read> table{
      {"format",
       [](Reader&, auto& m, auto& v) {
         if (text_of(m, v) != format) refuse(m, fmt::format("\"{}\"", format), v);
       }},
      {"keys", &Reader::read_keys},
      {"kernels", &Reader::read_kernels},
      {"forms", &Reader::read_forms},
      {"preset",
       [](Reader& r, auto& m, auto& v) {
         r.policy.preset = one_of(m, v, {"live", "smoke"});
       }},
      {"dtypes", &Reader::read_dtypes},
      {"forward_only", [](Reader& r, auto& m, auto& v) { r.policy.forward_only = truth_of(m, v); }},
      {"waivers", [](Reader& r, auto& m, auto& v) { r.policy.waivers = set_of(m, v); }},
      {"uncovered", [](Reader& r, auto& m, auto& v) { r.policy.uncovered = set_of(m, v); }},
      {"smallest_cases", [](Reader& r, auto& m, auto& v) { r.policy.smallest_cases = count_of(m, v); }},
      {"smallest_elements", [](Reader& r, auto& m, auto& v) { r.policy.smallest_elements = count_of(m, v); }},
      {"smallest_kills", [](Reader& r, auto& m, auto& v) { r.policy.smallest_kills = count_of(m, v); }},
      {"largest_undecidable_share", &Reader::read_share},
      {"max_age", [](Reader& r, auto& m, auto& v) { r.policy.max_age = span_of(m, v); }},
      {"clock_skew", &Reader::read_skew},
      {"machine", &Reader::read_machine},
      {"revoked_plans", [](Reader& r, auto& m, auto& v) { r.policy.revoked_plans = digests_of(m, v); }},
      {"revoked_candidates", [](Reader& r, auto& m, auto& v) { r.policy.revoked_candidates = digests_of(m, v); }},
      {"revoked_keys", [](Reader& r, auto& m, auto& v) { r.policy.revoked_keys = digests_of(m, v); }}};
  return table;
}

Policy read(const json& object, const std::filesystem::path& folder) {
  if (!object.is_object()) throw std::runtime_error(fmt::format("wanted a table, got {}", object.type_name()));
  std::vector<std::string> known;
  for (const auto& [name, reads] : members()) known.push_back(name);
  for (const auto& [name, value] : object.items())
    if (!members().contains(name))
      throw std::runtime_error(fmt::format("unknown member '{}'; {}", name, nearest_text(name, known)));
  for (const char* needed : {"format", "keys", "kernels"})
    if (!object.contains(needed))
      throw std::runtime_error(fmt::format("it has no '{}', which has no usual value", needed));
  Reader reader{.folder = folder};
  for (const auto& [name, value] : object.items()) members().at(name)(reader, name, value);
  Policy& policy = reader.policy;
  for (const attest::PublicKey& key : reader.named)
    (policy.revoked_keys.contains(attest::keyid(key)) ? policy.revoked : policy.keys).push_back(key);
  return policy;
}

}  // namespace

Policy policy_from(std::string_view text, const std::string& name, const std::filesystem::path& folder) {
  const std::string ending = std::filesystem::path(name).extension().string();
  if (ending != ".toml" && ending != ".json")
    throw std::runtime_error(fmt::format("the policy '{}': wanted a name that ends in .toml or .json", name));
  if (text.size() > most_bytes)
    throw std::runtime_error(fmt::format("the policy '{}' is larger than {} bytes", name, most_bytes));
  const std::string title = fmt::format("the policy '{}'", name);
  const json object = ending == ".toml" ? json_from_toml(text, title) : attest::strict_json(text, title, limits);
  try {
    return read(object, folder);
  } catch (const std::runtime_error& fault) {
    throw std::runtime_error(fmt::format("{}: {}", title, fault.what()));
  }
}

Policy policy_from(const std::filesystem::path& file) {
  return policy_from(read_whole(file), file.string(), file.parent_path());
}

nlohmann::json to_json(const Policy& policy) {
  std::vector<std::string> keys, revoked;
  for (const attest::PublicKey& key : policy.keys) keys.push_back(attest::keyid(key));
  for (const attest::PublicKey& key : policy.revoked) revoked.push_back(attest::keyid(key));
  json machine = json::object();
  for (const auto& [fact, rule] : policy.machine)
    machine[fact] =
        std::find_if(rules.begin(), rules.end(), [wanted = rule](const auto& r) { return r.first == wanted; })->second;
  return {{"keys", keys},
          {"revoked", revoked},
          {"kernels", policy.kernels},
          {"forms", policy.forms ? json(*policy.forms) : json()},
          {"preset", policy.preset},
          {"dtypes", policy.dtypes},
          {"forward_only", policy.forward_only},
          {"waivers", policy.waivers},
          {"uncovered", policy.uncovered},
          {"smallest_cases", policy.smallest_cases},
          {"smallest_elements", policy.smallest_elements},
          {"smallest_kills", policy.smallest_kills},
          {"largest_undecidable_share", policy.largest_undecidable_share},
          {"max_age", to_text(policy.max_age)},
          {"clock_skew", to_text(policy.clock_skew)},
          {"machine", machine},
          {"revoked_plans", policy.revoked_plans},
          {"revoked_candidates", policy.revoked_candidates},
          {"revoked_keys", policy.revoked_keys}};
}

}  // namespace fractus::gate
