#include "reports/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "properties/over_field.h"
#include "reports/verdict.h"
#include "reports/words.h"

namespace fractus {
namespace {

using nlohmann::json;

// What shards of one plan have in common, by the name that an error gives it. The plan's hash covers most of it; the
// rest is what the same plan can be put to in more than one way.
std::vector<std::pair<std::string, json>> identity_of(const Result& r) {
  std::vector<std::string> waived = r.waived;
  std::sort(waived.begin(), waived.end());
  std::vector<std::pair<std::string, json>> facts{
      {"kernel", r.kernel},
      {"candidate", r.candidate},
      {"settings", r.settings},
      {"recomputes", r.recomputes},
      {"reference", r.reference ? r.reference->name : ""},
      {"contract version", r.contract_version},
      {"seed", r.seed},
      {"preset", r.preset},
      {"dtypes", r.dtypes},
      {"forward only", r.forward_only},
      {"waived", waived},
      {"complete plan", r.plan_of},
      {"properties of the complete plan", r.plan_properties},
      {"known-good forms", r.known_good},
  };
  for (const auto& [key, value] : r.machine) facts.emplace_back("machine: " + key, value);
  return facts;
}

std::string text_of(const json& value) { return visible(value.is_string() ? value.get<std::string>() : value.dump()); }

void find_differences(const Shard& first, const Shard& other, std::vector<std::string>& differences) {
  const auto a = identity_of(first.result), b = identity_of(other.result);
  const auto value_in = [](const auto& facts, const std::string& name) {
    const auto found = std::find_if(facts.begin(), facts.end(), [&](const auto& fact) { return fact.first == name; });
    return found == facts.end() ? json("(none)") : found->second;
  };
  std::set<std::string> seen;
  for (const auto* facts : {&a, &b})
    for (const auto& [name, ignored] : *facts) {
      if (!seen.insert(name).second) continue;
      const json its = value_in(a, name), others = value_in(b, name);
      if (its != others)
        differences.push_back(fmt::format("{}: {} in {}, {} in {}", name, text_of(its), visible(first.name),
                                          text_of(others), visible(other.name)));
    }
}

// Power has no record of its own; any other property is there where its record is, whatever a list says.
bool holds(const Result& result, const std::string& property) {
  if (property == "power") return contains(result.partial ? result.only : result.plan_properties, property);
  return std::any_of(result.properties.begin(), result.properties.end(),
                     [&](const PropertyResult& p) { return p.name == property; });
}

// What two runs of the same cases have to agree in. Times, notes and the digits of a form that does not repeat its own
// bits may differ.
json counts_of(const PropertyResult& p) {
  return {{"planned", p.planned},   {"cases", p.cases},
          {"elements", p.elements}, {"verdict", p.verdict},
          {"waived", p.waived},     {"finding", p.finding ? p.finding->kind + " " + p.finding->tensor : ""}};
}

// The property as the shards have it; of two that agree the one that came nearer to its bound.
const PropertyResult* property_of(const std::vector<Shard>& shards, const std::string& property,
                                  const std::vector<PropertyResult>& (*list)(const Result&),
                                  std::vector<std::string>& differences) {
  const PropertyResult* found = nullptr;
  const Shard* finder = nullptr;
  for (const Shard& shard : shards)
    for (const PropertyResult& p : list(shard.result)) {
      if (p.name != property) continue;
      if (found == nullptr) {
        found = &p;
        finder = &shard;
        continue;
      }
      const json its = counts_of(*found), others = counts_of(p);
      for (const auto& [name, value] : its.items())
        if (value != others.at(name))
          differences.push_back(fmt::format("{} of {}: {} in {}, {} in {}", name, visible(property), text_of(value),
                                            visible(finder->name), text_of(others.at(name)), visible(shard.name)));
      if (p.worst() > found->worst()) found = &p;
    }
  return found;
}

const std::vector<PropertyResult>& own(const Result& result) { return result.properties; }
const std::vector<PropertyResult>& of_reference(const Result& result) { return result.reference->properties; }

void add_new(std::vector<std::string>& list, const std::vector<std::string>& more) {
  for (const std::string& text : more)
    if (!contains(list, text)) list.push_back(text);
}

std::string joined(const std::vector<Shard>& shards, std::string Result::*member) {
  std::vector<std::string> texts;
  for (const Shard& shard : shards)
    if (const std::string& text = shard.result.*member; !text.empty()) add_new(texts, {text});
  return fmt::format("{}", fmt::join(texts, "; "));
}

// A known-wrong form is caught where any shard caught it, in the way that the whole plan would have: by a property of
// this run before one of the other dtype or of the gradients alone, and by the earliest of them.
void merge_kills(const std::vector<Shard>& shards, Result& whole) {
  const auto rank = [&](const Kill& kill) {
    const auto at = std::find(whole.plan_properties.begin(), whole.plan_properties.end(), kill.property);
    return kill.killed ? at - whole.plan_properties.begin() : std::ptrdiff_t{1} << 40;
  };
  for (const Shard& shard : shards) add_new(whole.backward_alone, shard.result.backward_alone);
  for (const Shard& shard : shards)
    for (const Kill& kill : shard.result.kills) {
      const auto known = std::find_if(whole.kills.begin(), whole.kills.end(),
                                      [&](const Kill& other) { return other.form == kill.form; });
      if (known == whole.kills.end())
        whole.kills.push_back(kill);
      else if (rank(kill) < rank(*known))
        *known = kill;
    }
  // Set apart by one shard, and caught by another all the same.
  std::erase_if(whole.backward_alone, [&](const std::string& form) {
    return std::any_of(whole.kills.begin(), whole.kills.end(),
                       [&](const Kill& kill) { return kill.killed && kill.form == form; });
  });
  std::erase_if(whole.kills, [&](const Kill& kill) { return contains(whole.backward_alone, kill.form); });
}

// Every case belongs to one property, so the classes of shards add up to those of the plan; a property that two shards
// hold would count twice, which covers nothing that was not covered.
void merge_coverage(const std::vector<Shard>& shards, Coverage& coverage) {
  for (const Shard& shard : shards) {
    for (const auto& [name, count] : shard.result.coverage.cases) coverage.cases[name] += count;
    for (const auto& [dtype, dims] : shard.result.coverage.largest)
      for (const auto& [symbol, extent] : dims) {
        std::int64_t& largest = coverage.largest[dtype][symbol];
        largest = std::max(largest, extent);
      }
  }
}

Reference reference_of(const std::vector<Shard>& shards, const std::vector<PropertyResult>& properties,
                       std::vector<std::string>& differences) {
  Reference reference = *shards.front().result.reference;
  reference.properties.clear();
  for (const Shard& shard : shards) {
    const Reference& its = *shard.result.reference;
    if (reference.trouble.empty()) reference.trouble = its.trouble;
    if (its.verdict == "FAILED") reference.output = its.output;
  }
  for (const PropertyResult& p : properties)
    if (const PropertyResult* its = property_of(shards, p.name, of_reference, differences))
      reference.properties.push_back(*its);
  return reference;
}

[[noreturn]] void refuse(const std::vector<std::string>& differences) {
  throw std::runtime_error(fmt::format("these are no shards of one plan:\n  {}", fmt::join(differences, "\n  ")));
}

}  // namespace

Result merged(const std::vector<Shard>& shards) {
  if (shards.empty()) throw std::runtime_error("no results to put together");
  std::vector<std::string> differences;
  const Shard& first = shards.front();
  for (const Shard& shard : shards) {
    if (shard.result.kernel != first.result.kernel || shard.result.candidate != first.result.candidate)
      throw std::runtime_error(
          fmt::format("{} is of {} {} and {} of {} {}: shards of one plan are put together, not results of different "
                      "candidates",
                      visible(first.name), visible(first.result.kernel), visible(first.result.candidate),
                      visible(shard.name), visible(shard.result.kernel), visible(shard.result.candidate)));
    find_differences(first, shard, differences);
  }
  if (!differences.empty()) refuse(differences);

  Result whole = first.result;
  whole.shards.clear();
  whole.properties.clear();
  whole.kills.clear();
  whole.backward_alone.clear();
  whole.complaints.clear();
  whole.shared_edges.clear();
  whole.audit.clear();
  whole.lines.clear();
  whole.coverage = {};
  whole.seconds = 0;
  whole.power_measured = true;
  for (const Shard& shard : shards) {
    const Result& r = shard.result;
    if (r.shards.empty())
      add_new(whole.shards, {r.plan_hash});
    else
      add_new(whole.shards, r.shards);
    add_new(whole.complaints, r.complaints);
    add_remarks(whole.audit, r.audit);
    whole.shared_edges.insert(r.shared_edges.begin(), r.shared_edges.end());
    whole.lines.insert(r.lines.begin(), r.lines.end());  // by property: the first shard's, where two have it
    whole.power_measured = whole.power_measured && r.power_measured;
    whole.started = std::min(whole.started, r.started);  // ISO 8601 in UTC sorts as text
    whole.seconds += r.seconds;
    if (r.verdict == Verdict::failed) whole.candidate_output = r.candidate_output;
  }
  whole.trouble = joined(shards, &Result::trouble);
  whole.unfit = joined(shards, &Result::unfit);
  whole.cut = joined(shards, &Result::cut);
  for (const std::string& property : first.result.plan_properties)
    if (const PropertyResult* p = property_of(shards, property, own, differences)) whole.properties.push_back(*p);
  if (first.result.reference) {
    for (const Shard& shard : shards)
      if (shard.result.reference->settings != first.result.reference->settings)
        differences.push_back(fmt::format("settings of the reference: {} in {}, {} in {}",
                                          settings_text(first.result.reference->settings), visible(first.name),
                                          settings_text(shard.result.reference->settings), visible(shard.name)));
    whole.reference = reference_of(shards, whole.properties, differences);
  }
  if (!differences.empty()) refuse(differences);
  merge_kills(shards, whole);
  merge_coverage(shards, whole.coverage);

  // A known-wrong form that one shard let live may be what another was there to catch, so what the plan can see is
  // known only where every shard measured its part.
  whole.only.clear();
  for (const std::string& property : whole.plan_properties) {
    const auto has = [&](const Shard& shard) { return holds(shard.result, property); };
    if (property == "power" ? std::all_of(shards.begin(), shards.end(), has)
                            : std::any_of(shards.begin(), shards.end(), has))
      whole.only.push_back(property);
  }
  whole.partial = whole.only != whole.plan_properties;
  if (!whole.partial) whole.only.clear();
  whole.plan_hash = whole.partial ? "" : whole.plan_of;
  conclude(whole);
  return whole;
}

}  // namespace fractus
