#include "reports/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fractus {
namespace {

// Above this share of elements without a bound a property has not been tried in earnest.
constexpr double most_undecidable = 0.25;
constexpr double quarantine_factor = 4;
constexpr std::int64_t quarantine_cases = 10;  // fewer have no worst worth the name
// The errors of n roundings add up to about u sqrt(n) where a bound has room for u n (Higham and Mary, A New Approach
// to Probabilistic Rounding Error Analysis, 2019), and no sum of the contracts has 2^18 terms. Where all known-good
// forms stay below 2^-9 of the bound, conditioning makes it and not a count of roundings: a few times as much is
// chance, and says nothing of a form's arithmetic.
constexpr double least_ratio = 0x1p-9;
// What still says something there: the step from float32 to the next coarser type in use is 2^13 (TF32, half), and a
// form that takes it shows most of that.
constexpr double coarser_type = 0x1p10;

double line_of(double known_good) {
  return std::min(coarser_type * known_good, quarantine_factor * std::max(known_good, least_ratio));
}

// The verdict of one property, from what was counted.
void settle(PropertyResult& record) {
  if (record.elements > 0 &&
      static_cast<double>(record.undecidable) > most_undecidable * static_cast<double>(record.elements))
    record.reason = fmt::format("{} of {} elements have no bound", record.undecidable, record.elements);
  if (record.finding)
    record.verdict = record.finding->broken ? "FAILED" : "DIFFERENT";
  else if (!record.algebra.empty()) {
    record.verdict = "UNDECIDED";
    record.reason = "the algebra differs below rounding: " + record.algebra;
  } else if (record.not_algebraic)
    record.verdict = "NOT ALGEBRAIC";
  else if (record.cases < record.planned)
    record.verdict = record.cases == 0 ? "NOT RUN" : "UNDECIDED";
  else if (!record.reason.empty())
    record.verdict = "UNDECIDED";
  else if (!record.waived.empty())
    record.verdict = "WAIVED";
  else
    record.verdict = "PASSED";
  // A form of which nothing is claimed there is still judged by all other properties.
  if (record.verdict == "NOT ALGEBRAIC") return;
  if (record.cases < record.planned && !record.finding && record.reason.empty())
    record.reason = fmt::format("{} of {} cases were run", record.cases, record.planned);
}

void settle(Reference& reference) {
  reference.failures.clear();
  if (!reference.trouble.empty())
    reference.failures.push_back(
        fmt::format("the reference '{}' cannot be used: {}", reference.name, reference.trouble));
  for (PropertyResult& record : reference.properties) {
    record.reason.clear();
    settle(record);
    if (!record.finding) continue;
    std::string failure = fmt::format("the reference '{}' itself fails {}", reference.name, record.name);
    if (record.witness) failure += " at " + label(record.witness->smallest);
    failure += ": " + record.finding->text;
    if (record.witness && !record.witness->replay.empty()) failure += "; " + record.witness->replay;
    reference.failures.push_back(std::move(failure));
  }
  const auto any = [&](const std::string& verdict) {
    return std::any_of(reference.properties.begin(), reference.properties.end(),
                       [&](const PropertyResult& record) { return record.verdict == verdict; });
  };
  reference.verdict = !reference.trouble.empty() || any("FAILED") ? "FAILED"
                      : any("DIFFERENT")                          ? "DIFFERENT"
                      : any("UNDECIDED") || any("NOT RUN")        ? "UNDECIDED"
                                                                  : "PASSED";
}

std::string partial_text(const Result& result) {
  const std::vector<std::string> out = left_out(result);
  if (!result.shards.empty())
    return fmt::format("partial: no shard has {}; nothing wrong was found in the others", fmt::join(out, ", "));
  if (!out.empty() && out.size() < result.only.size())
    return fmt::format("partial: {} was left out; nothing wrong was found in the rest", fmt::join(out, ", "));
  return fmt::format("partial: only {} was asked for; nothing wrong was found in it", fmt::join(result.only, ", "));
}

// The worst fact decides: a broken run before other numbers, those before doubt about the run itself, that before
// doubt about the numbers.
void decide(Result& result) {
  for (const auto& [fact, verdict] :
       {std::pair(result.trouble, Verdict::failed), std::pair(result.unfit, Verdict::mistrusted)})
    if (!fact.empty()) {
      result.verdict = verdict;
      result.reasons = {fact};
      return;
    }
  Verdict verdict = Verdict::equivalent;
  result.reasons = result.complaints;
  const auto raise = [&](Verdict to, const std::string& reason) {
    static constexpr Verdict order[] = {Verdict::equivalent, Verdict::undecided, Verdict::mistrusted,
                                        Verdict::different, Verdict::failed};
    const auto rank = [](Verdict v) { return std::find(std::begin(order), std::end(order), v); };
    if (rank(to) > rank(verdict)) verdict = to;
    if (!reason.empty()) result.reasons.push_back(reason);
  };
  for (const PropertyResult& record : result.properties) {
    if (record.finding)
      raise(record.finding->broken ? Verdict::failed : Verdict::different,
            fmt::format("{}: {}", record.name, record.finding->text));
    else if (!record.reason.empty())
      raise(Verdict::undecided, fmt::format("{}: {}", record.name, record.reason));
  }
  // Nobody can replace a form that is wrong itself, however right the candidate is.
  if (result.reference)
    for (const std::string& failure : result.reference->failures) raise(Verdict::mistrusted, failure);
  if (verdict == Verdict::different || verdict == Verdict::failed) {
    result.verdict = verdict;
    return;
  }
  // A reference that breaks its own contract is a finding of ours, and no basis for any verdict.
  if (!result.complaints.empty()) raise(Verdict::mistrusted, "");
  if (result.reference)
    for (const PropertyResult& record : result.reference->properties)
      if (record.verdict == "UNDECIDED" && record.cases == record.planned)
        raise(Verdict::undecided, fmt::format("{} of the reference: {}", record.name, record.reason));
  if (!result.cut.empty()) raise(Verdict::undecided, result.cut);
  if (result.partial)
    raise(Verdict::undecided, partial_text(result));
  else if (result.cut.empty()) {
    if (const auto missing = result.coverage.missing(); !missing.empty())
      raise(Verdict::mistrusted, fmt::format("the plan covered too little: no case of {}", fmt::join(missing, ", ")));
    std::vector<std::string> survivors;
    for (const Kill& kill : result.kills)
      if (!kill.killed) survivors.push_back(kill.form);
    if (result.power_measured && !survivors.empty())
      raise(Verdict::mistrusted, fmt::format("the plan does not see {} known-wrong form(s): {}", survivors.size(),
                                             fmt::join(survivors, ", ")));
    if (result.power_measured && result.kills.empty())
      raise(Verdict::mistrusted, "no known-wrong form measured what the plan can see");
    if (!result.power_measured) raise(Verdict::mistrusted, "what the plan can see was not measured");
  }
  result.verdict = verdict;
}

}  // namespace

std::vector<Quarantine> exceeded(const Lines& lines) {
  // The bound of a short sequence is a few roundings wide and right forms come near it; that of a long one is hardly
  // used. So each length class has a line of its own, over all properties together.
  struct Total : Line {
    std::string property;  // of the candidate's worst
  };
  std::map<std::string, Total> totals;
  for (const auto& [property, its] : lines)
    for (const auto& [key, line] : its) {
      Total& total = totals[key];
      total.cases += line.cases;
      total.known_good = std::max(total.known_good, line.known_good);
      if (line.candidate <= total.candidate) continue;
      total.candidate = line.candidate;
      total.property = property;
      total.where = line.where;
    }
  std::vector<Quarantine> all;
  for (const auto& [key, line] : totals)
    if (line.cases >= quarantine_cases && line.known_good > 0 && line.candidate > line_of(line.known_good))
      all.push_back({line.property,
                     fmt::format("quarantined: {} reaches {:.3g} of its bound, the known-good forms {:.3g} on the same "
                                 "{} cases; its worst is at {}",
                                 key, line.candidate, line.known_good, line.cases, line.where)});
  return all;
}

void conclude(Result& result) {
  for (PropertyResult& record : result.properties) record.reason.clear();
  for (const auto& [property, reason] : exceeded(result.lines))
    for (PropertyResult& record : result.properties)
      if (record.name == property) record.reason = reason;
  for (PropertyResult& record : result.properties) settle(record);
  if (result.reference) settle(*result.reference);
  decide(result);
}

}  // namespace fractus
