#include "gate/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "gate/members.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

// Those of `got` that are not in `allowed`.
std::vector<std::string> beyond(const std::vector<std::string>& got, const std::set<std::string>& allowed) {
  std::vector<std::string> rest;
  std::copy_if(got.begin(), got.end(), std::back_inserter(rest),
               [&](const auto& one) { return !allowed.contains(one); });
  return rest;
}

std::vector<std::string> list_of(const std::set<std::string>& names) { return {names.begin(), names.end()}; }

// As the command line spells it, without the folders of its file: "kernels.py:attention", "chunked:block=64". Of one
// file any function may be called, so the bytes alone do not say which one the verdict is on.
std::string form_of(const std::string& candidate, const json& settings) {
  std::string form = candidate.substr(candidate.rfind('/') + 1);
  char before = ':';
  for (const auto& [parameter, value] : settings.items()) {
    form += fmt::format("{}{}={}", before, parameter, value.dump());
    before = ',';
  }
  return form;
}

// One check's answer: `said` where nothing was refused.
Answer passed_or(Answer answer, const std::string& check, const std::string& said) {
  if (answer.refusals.empty()) answer.checked.push_back({check, said});
  return answer;
}

Answer kernel(const Policy& policy, const json& predicate) {
  const char* check = "kernel";
  Answer answer;
  const Members said(predicate, check, answer);
  const auto name = said.text("kernel");
  const auto version = said.count("contract_version");
  const auto candidate = said.text("candidate");
  if (name) {
    const auto known = policy.kernels.find(*name);
    std::vector<std::string> kernels;
    for (const auto& [kernel, contract] : policy.kernels) kernels.push_back(kernel);
    if (known == policy.kernels.end())
      answer.refusals.push_back(
          {check, fmt::format("wanted a verdict on {}, got one on {}", shown(kernels), shown(*name)),
           "give the envelope of the kernel that is to be loaded, or add the kernel to the policy's 'kernels'"});
    else if (version && *version != known->second)
      answer.refusals.push_back(
          {check,
           fmt::format("{}: wanted a verdict on version {} of its contract, got one on version {}", *name,
                       known->second, *version),
           "verify the candidate again with the version of fractus-verify that holds this contract"});
  }
  if (policy.forms)
    if (const json* settings = said.object("settings"); settings != nullptr && candidate)
      if (const std::string form = form_of(*candidate, *settings); !policy.forms->contains(form))
        answer.refusals.push_back(
            {check,
             fmt::format("wanted a verdict on the form {}, got one on {}", shown(list_of(*policy.forms)), shown(form)),
             "verify the form that will be called, or add this one to the policy's 'forms'"});
  return passed_or(answer, check,
                   fmt::format("{}, contract {}, the form {}", shown(name.value_or("")), version.value_or(0),
                               shown(candidate.value_or(""))));
}

Answer word(const json& predicate) {
  const char* check = "verdict";
  Answer answer;
  if (const auto verdict = Members(predicate, check, answer).text("verdict"); verdict && *verdict != "EQUIVALENT")
    answer.refusals.push_back({check, fmt::format("wanted EQUIVALENT, got {}", shown(*verdict)),
                               *verdict == "PARTIAL"
                                   ? "run the whole plan, without --only and --skip, or merge the shards of one plan"
                                   : "the form in use stays; read the report, mend the candidate and verify it again"});
  return passed_or(answer, check, "EQUIVALENT");
}

Answer scope(const Policy& policy, const json& predicate) {
  const char* check = "scope";
  Answer answer;
  const Members said(predicate, check, answer);
  const auto preset = said.text("preset");
  const auto dtypes = said.texts("dtypes");
  const auto forward_only = said.truth("forward_only");
  const auto waived = said.texts("waived");
  // The plan of live is that of smoke with the training run's shape and more draws.
  if (preset && *preset != "live" && *preset != policy.preset)
    answer.refusals.push_back({check, fmt::format("wanted the preset {}, got {}", policy.preset, shown(*preset)),
                               fmt::format("verify the candidate with --preset {}", policy.preset)});
  if (dtypes) {
    const auto missing = beyond(list_of(policy.dtypes), {dtypes->begin(), dtypes->end()});
    if (!missing.empty())
      answer.refusals.push_back(
          {check, fmt::format("wanted a verdict for {}, got one for {}", shown(list_of(policy.dtypes)), shown(*dtypes)),
           "verify the candidate without --dtype, or name in the policy's 'dtypes' only what the run uses"});
  }
  if (forward_only && *forward_only && !policy.forward_only)
    answer.refusals.push_back({check, "wanted a verdict with gradients, got one of a forward-only run",
                               "verify the candidate without --forward-only; where it is only ever called without "
                               "gradients, set the policy's 'forward_only'"});
  if (waived)
    if (const auto rest = beyond(*waived, policy.waivers); !rest.empty())
      answer.refusals.push_back(
          {check, fmt::format("wanted no waiver but {}, got {}", shown(list_of(policy.waivers)), shown(rest)),
           "verify the candidate without --waive, or add the waiver to the policy's 'waivers'"});
  return passed_or(
      answer, check,
      fmt::format("preset {}, {}", shown(preset.value_or("")), shown(dtypes.value_or(std::vector<std::string>{}))));
}

// Of the predicate's properties, each of which must have passed whole.
void require_properties(const json& properties, const char* check, Answer& answer, bool has_waivers) {
  if (properties.empty())
    answer.refusals.push_back({check, "wanted properties that passed, got none", "verify the candidate again"});
  for (const json& property : properties) {
    if (!property.is_object()) {
      answer.refusals.push_back({check, "a property of the statement is no object", "verify the candidate again"});
      continue;
    }
    const Members said(property, check, answer, "properties.");
    const auto name = said.text("name"), verdict = said.text("verdict");
    const auto cases = said.count("cases"), planned = said.count("planned");
    if (!name || !verdict || !cases || !planned) continue;
    // Of a form that is not algebraic the property claims nothing, and finds nothing: all others judge it.
    if (*name == "identity" && *verdict == "NOT ALGEBRAIC") continue;
    if (*verdict != "PASSED" && !(has_waivers && *verdict == "WAIVED"))
      answer.refusals.push_back({check, fmt::format("{}: wanted PASSED, got {}", shown(*name), shown(*verdict)),
                                 "read the report of this property, and verify the candidate again"});
    if (*cases != *planned)
      answer.refusals.push_back(
          {check, fmt::format("{}: wanted all of its {} planned cases, got {}", shown(*name), *planned, *cases),
           "run the whole plan, with a larger --budget where it was cut"});
  }
}

Answer extent(const Policy& policy, const json& predicate) {
  const char* check = "extent";
  Answer answer;
  const Members said(predicate, check, answer);
  const auto cases = said.count("cases"), elements = said.count("elements"), undecidable = said.count("undecidable");
  const json* properties = said.list("properties");
  const json* coverage = said.object("coverage");
  const auto at_least = [&](const char* what, const std::optional<std::int64_t>& got, std::int64_t wanted) {
    if (got && *got < wanted)
      answer.refusals.push_back({check, fmt::format("wanted at least {} {}, got {}", wanted, what, *got),
                                 "verify the candidate with the whole plan of this version"});
  };
  at_least("cases", cases, policy.smallest_cases);
  at_least("elements", elements, policy.smallest_elements);
  // From the counts, so that a share that was rounded or written by another rule decides nothing.
  if (elements && undecidable && *elements > 0) {
    const double share = static_cast<double>(*undecidable) / static_cast<double>(*elements);
    if (share > policy.largest_undecidable_share)
      answer.refusals.push_back(
          {check,
           fmt::format("wanted at most {} of the elements undecidable, got {:.3g} ({} of {})",
                       policy.largest_undecidable_share, share, *undecidable, *elements),
           "look in the report at which property and tensor have no bound; verify with another --seed, or a plan "
           "whose input is better conditioned"});
  }
  if (properties != nullptr) {
    const auto waived = predicate.find("waived");
    require_properties(*properties, check, answer, waived != predicate.end() && waived->is_array() && !waived->empty());
  }
  if (coverage != nullptr)
    if (const auto missing = Members(*coverage, check, answer, "coverage.").texts("missing"))
      if (const auto rest = beyond(*missing, policy.uncovered); !rest.empty())
        answer.refusals.push_back({check, fmt::format("wanted no class without a case, got {}", shown(rest)),
                                   "verify the candidate with the whole plan; a larger --budget or another --seed "
                                   "where a class was not reached"});
  return passed_or(answer, check,
                   fmt::format("{} cases, {} elements, {} of them undecidable", cases.value_or(0), elements.value_or(0),
                               undecidable.value_or(0)));
}

Answer power(const Policy& policy, const json& predicate) {
  const char* check = "power";
  Answer answer;
  const json* mutants = Members(predicate, check, answer).object("mutants");
  if (mutants == nullptr) return answer;
  const Members said(*mutants, check, answer, "mutants.");
  const auto measured = said.truth("measured");
  const auto killed = said.count("killed"), total = said.count("total");
  const auto survivors = said.texts("survivors");
  if (measured && !*measured)
    answer.refusals.push_back({check, "wanted a measurement of what the plan sees, got none",
                               "run the whole plan, without --only and with a larger --budget where it was cut"});
  if (killed && total && (*killed != *total || (survivors && !survivors->empty())))
    answer.refusals.push_back(
        {check,
         fmt::format("wanted all {} known-wrong forms caught, got {}; survivors: {}", *total, *killed,
                     shown(survivors.value_or(std::vector<std::string>{}))),
         "the plan does not see these faults: strengthen it, and trust no verdict of it until then"});
  if (killed && *killed < policy.smallest_kills)
    answer.refusals.push_back(
        {check, fmt::format("wanted at least {} known-wrong forms caught, got {}", policy.smallest_kills, *killed),
         "verify the candidate with a version of fractus-verify that has the kernel's known-wrong forms"});
  return passed_or(answer, check,
                   fmt::format("{} of {} known-wrong forms caught", killed.value_or(0), total.value_or(0)));
}

Answer plan(const Policy& policy, const json& predicate) {
  const char* check = "plan";
  Answer answer;
  const auto hash = Members(predicate, check, answer).text("plan_hash");
  if (hash && policy.revoked_plans.contains(*hash))
    answer.refusals.push_back({check, fmt::format("the plan {} is revoked by the policy", *hash),
                               "verify the candidate with a plan that is not: another --seed, or the version of "
                               "fractus-verify that mends it"});
  return passed_or(answer, check, shown(hash.value_or("")));
}

}  // namespace

Answer verdict_admitted(const Policy& policy, const json& predicate) {
  Answer answer = word(predicate);
  answer.add(kernel(policy, predicate));
  answer.add(scope(policy, predicate));
  answer.add(extent(policy, predicate));
  answer.add(power(policy, predicate));
  answer.add(plan(policy, predicate));
  return answer;
}

Answer age_admitted(const Policy& policy, const json& predicate, Instant clock) {
  const char* check = "time";
  const std::string again = "verify the candidate again, which signs a new envelope";
  Answer answer;
  const Members said(predicate, check, answer);
  const auto time_of = [&](const char* name) -> std::optional<Instant> {
    const auto text = said.text(name);
    const auto time = text ? instant_from(*text) : std::nullopt;
    if (text && !time)
      answer.refusals.push_back(
          {check,
           fmt::format("the statement's '{}': wanted a time such as {}, got '{}'", name, to_text(clock), shown(*text)),
           again});
    return time;
  };
  const auto issued = time_of("issued"), expires = time_of("expires");
  // The clock may lag the signer's by a little; it is not let lag behind an expiry, which a signer sets days ahead.
  if (issued && *issued > clock + policy.clock_skew)
    answer.refusals.push_back({check,
                               fmt::format("it was issued at {}, and this machine's clock shows {}: a time to come",
                                           to_text(*issued), to_text(clock)),
                               "set this machine's clock; where it is right, the signer's was wrong: " + again});
  if (issued && clock > *issued + policy.max_age)
    answer.refusals.push_back({check,
                               fmt::format("wanted a verdict of the last {}, got one of {}; it is {}",
                                           to_text(policy.max_age), to_text(*issued), to_text(clock)),
                               again});
  if (expires && clock >= *expires)
    answer.refusals.push_back(
        {check, fmt::format("it expired at {}; it is {}", to_text(*expires), to_text(clock)), again});
  if (issued && expires && *expires <= *issued)
    answer.refusals.push_back(
        {check, fmt::format("it expires at {}, not after it was issued at {}", to_text(*expires), to_text(*issued)),
         again});
  return passed_or(answer, check,
                   issued && expires ? fmt::format("issued {}, expires {}", to_text(*issued), to_text(*expires)) : "");
}

}  // namespace fractus::gate
