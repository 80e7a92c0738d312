#include "reports/statement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "attest/time.h"

namespace fractus {
namespace {

using nlohmann::json;

// Why it is no complete run without a fault; empty where it is one. The verdict was reached elsewhere; that a signature
// stands for a complete run is looked at again here, where nothing after it can put it right.
std::string shortfall(const Result& result) {
  if (result.partial) return "properties were left out";
  if (result.plan_hash.empty() || result.plan_hash != result.plan_of) return "its plan is a part of another one";
  for (const std::string& fact : {result.trouble, result.unfit, result.cut})
    if (!fact.empty()) return fact;
  if (!result.complaints.empty()) return result.complaints.front();
  if (!result.power_measured || result.kills.empty()) return "what the plan can see was not measured";
  for (const Kill& kill : result.kills)
    if (!kill.killed) return fmt::format("the known-wrong form {} was not caught", kill.form);
  if (const auto missing = result.coverage.missing(); !missing.empty())
    return fmt::format("no case of {}", fmt::join(missing, ", "));
  if (result.properties.empty()) return "no property was tried";
  const auto fault_in = [](const std::vector<PropertyResult>& properties) -> std::string {
    for (const PropertyResult& property : properties) {
      const bool faultless = !property.finding && property.reason.empty() && property.algebra.empty();
      // Of a form that is not algebraic it claims nothing, and has found nothing: all others judge it.
      if (property.name == "identity" && property.verdict == "NOT ALGEBRAIC" && faultless) continue;
      if (property.cases < property.planned || !faultless ||
          (property.verdict != "PASSED" && property.verdict != "WAIVED"))
        return fmt::format("{} is {}, {} of {} cases run", property.name, property.verdict, property.cases,
                           property.planned);
    }
    return "";
  };
  if (const std::string fault = fault_in(result.properties); !fault.empty()) return fault;
  if (!result.reference) return "";
  if (!result.reference->trouble.empty()) return result.reference->trouble;
  if (!result.reference->failures.empty()) return result.reference->failures.front();
  if (result.reference->properties.size() != result.properties.size()) return "the reference ran other properties";
  return fault_in(result.reference->properties);
}

json words_of(const std::string& text) {
  std::istringstream words(text);
  json list = json::array();
  for (std::string word; words >> word;) list.push_back(word);
  return list;
}

json machine_of(const Result& result) {
  json machine = result.machine;
  if (const auto features = result.machine.find("cpu_features"); features != result.machine.end())
    machine["cpu_features"] = words_of(features->second);
  return machine;
}

json names_of(const std::vector<attest::Subject>& subjects) {
  json names = json::array();
  for (const attest::Subject& subject : subjects) names.push_back(subject.name);
  return names;
}

std::vector<attest::Subject> together(const Bytes& bytes) {
  std::vector<attest::Subject> all;
  for (const auto* part : {&bytes.candidate, &bytes.reference})
    for (const attest::Subject& subject : *part) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == subject.name; });
      if (same == all.end())
        all.push_back(subject);
      else if (*same != subject)
        throw std::invalid_argument(
            fmt::format("'{}' names two files with different bytes, and a statement cannot tell them apart: rename one",
                        subject.name));
    }
  return all;
}

json properties_of(const json& result) {
  json list = json::array();
  for (const json& property : result.at("properties")) {
    json one;
    for (const char* member : {"name", "verdict", "cases", "planned", "worst_ratio"}) one[member] = property.at(member);
    list.push_back(one);
  }
  return list;
}

}  // namespace

std::string verdict_to_sign(const Result& result) {
  if (result.verdict == Verdict::equivalent) {
    if (const std::string why = shortfall(result); !why.empty())
      throw std::logic_error(fmt::format("a result calls itself EQUIVALENT, and is no complete run: {}", why));
  }
  // Its one reason is that it is partial: whatever else casts doubt on it adds another.
  if (result.partial && result.verdict == Verdict::undecided && result.reasons.size() == 1) return "PARTIAL";
  return std::string(name(result.verdict));
}

Bytes bytes_in(const attest::Statement& statement) {
  const auto of_role = [&](const char* role) {
    const auto names = statement.predicate.value(role, std::vector<std::string>{});
    std::vector<attest::Subject> subjects;
    for (const attest::Subject& subject : statement.subjects)
      if (contains(names, subject.name)) subjects.push_back(subject);
    return subjects;
  };
  return {of_role("candidate_subjects"), of_role("reference_subjects")};
}

std::string text_of(const Bytes& bytes) {
  std::vector<std::string> words;
  for (const auto* part : {&bytes.candidate, &bytes.reference})
    for (const attest::Subject& subject : *part)
      words.push_back(fmt::format("{} {}...", subject.name, subject.digest.substr(0, 8)));
  return fmt::format("({})", fmt::join(words, ", "));
}

attest::Statement statement_of(const Result& result, const Bytes& bytes, std::int64_t issued, std::int64_t expires) {
  if (bytes.candidate.empty())
    throw std::invalid_argument("a statement binds the candidate's bytes, and there are none");
  if (expires <= issued) throw std::invalid_argument("a statement expires after it was issued");
  const std::string verdict = verdict_to_sign(result);  // first: it looks whether the result is one
  const json view = to_json(result);
  std::int64_t cases = 0, elements = 0, undecidable = 0;
  for (const PropertyResult& property : result.properties) {
    cases += property.cases;
    elements += property.elements;
    undecidable += property.undecidable;
  }
  const json& mutants = view.at("mutants");
  const std::vector<std::string> missing = result.coverage.missing();
  const json predicate{
      {"format", attest::predicate_format},
      {"verdict", verdict},
      {"kernel", result.kernel},
      {"candidate", result.candidate},
      {"settings", result.settings},
      {"contract_version", result.contract_version},
      {"plan_hash", result.plan_hash},
      {"seed", result.seed},
      {"preset", result.preset},
      {"dtypes", result.dtypes},
      {"forward_only", result.forward_only},
      {"waived", result.waived},
      {"cases", cases},
      {"elements", elements},
      {"undecidable", undecidable},
      {"undecidable_share", elements == 0 ? 0.0 : static_cast<double>(undecidable) / static_cast<double>(elements)},
      {"mutants",
       {{"measured", mutants.at("measured")},
        {"killed", mutants.at("killed")},
        {"total", mutants.at("total")},
        {"survivors", mutants.at("survivors")}}},
      {"coverage",
       {{"covered", result.coverage.cases.size() - missing.size()},
        {"planned", result.coverage.cases.size()},
        {"missing", missing},
        {"largest", view.at("largest")}}},
      {"properties", properties_of(view)},
      {"machine", machine_of(result)},
      {"issued", attest::text_of_time(issued)},
      {"expires", attest::text_of_time(expires)},
      {"candidate_subjects", names_of(bytes.candidate)},
      {"reference_subjects", names_of(bytes.reference)},
      {"result", view}};
  return {together(bytes), predicate};
}

}  // namespace fractus
