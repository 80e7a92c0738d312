#include "harness/judge.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/attached.h"
#include "harness/clock.h"
#include "harness/explain.h"
#include "harness/machine.h"
#include "harness/measure.h"
#include "harness/trailing.h"
#include "properties/cases.h"
#include "reports/words.h"

namespace fractus {
namespace {

// Above this share of elements without a bound a property has not been tried in earnest.
constexpr double most_undecidable = 0.25;
// By how much the known-good and known-wrong forms may be behind, in elements of input: it bounds the memory of what
// waits, about 100 bytes an element.
constexpr std::size_t most_waiting = 4'000'000;
constexpr int most_deaths = 3;  // of the candidate's process, after which the run stops

void add_ratios(std::map<std::string, double>& ratios, DType dtype, const Outcome& outcome) {
  for (const auto& [tensor, ratio] : outcome.worst_ratio) {
    double& worst = ratios[fmt::format("{} {}", name(dtype), tensor)];
    worst = std::max(worst, ratio);
  }
}

class Run {
 public:
  Run(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings)
      : driver_(driver),
        plan_(plan),
        settings_(settings),
        candidate_(workshop, *workshop.find_form(plan.kernel, plan.candidate), plan.settings),
        measure_(workshop, driver, plan) {
    result_.coverage = blank_coverage(driver, plan.generation);
    for (const std::string& name : plan.properties) {
      if (name == "power") continue;
      const Property* property = find_property(name);
      PropertyResult planned;
      planned.name = name;
      planned.proves = property->proves;
      planned.planned =
          std::count_if(plan.cases.begin(), plan.cases.end(), [&](const Case& c) { return c.property == name; });
      result_.properties.push_back(std::move(planned));
    }
  }

  Result result() {
    stopped_ = block_too_large() || !candidate_.form().trouble.empty();  // nothing that follows could make up for it
    for (std::size_t i = 0; i < plan_.cases.size() && !stopped_; ++i) {
      if (settings_.progress)
        settings_.progress({plan_.cases[i].property, i, plan_.cases.size(), seconds_since(start_)});
      if (seconds_since(start_) > settings_.budget.count()) {
        out_of_budget_ = true;
        break;
      }
      run_case(plan_.cases[i]);
    }
    join_others();
    conclude();
    return std::move(result_);
  }

 private:
  PropertyResult& of(const std::string& property) {
    return *std::find_if(result_.properties.begin(), result_.properties.end(),
                         [&](const PropertyResult& r) { return r.name == property; });
  }

  void run_case(const Case& c) {
    PropertyResult& record = of(c.property);
    if (record.finding) return;  // one witness a property is enough; the others are still to be tried
    const Clock::time_point start = Clock::now();
    const Property& property = *find_property(c.property);
    const auto expectation = std::make_shared<Expectation>(driver_, c, 2);
    const Outcome outcome = property.check(*expectation, candidate_.subject());
    ++record.cases;
    record.elements += outcome.elements;
    record.undecidable += outcome.undecidable;
    record.choices_in_doubt += outcome.choices_in_doubt;
    record.bit_equal += outcome.bit_equal;
    if (outcome.escape) record.escape = std::max(record.escape, *outcome.escape);
    if (!outcome.note.empty()) record.notes.push_back(outcome.note);
    count(result_.coverage, driver_, plan_.generation, c, outcome);
    if (outcome.finding && contains(settings_.waived, outcome.finding->waiver)) {
      ++record.waived[outcome.finding->waiver];
    } else if (outcome.finding) {
      record.finding = outcome.finding;
      // A candidate that hangs or keeps dying would cost its whole time limit again and again.
      if (record.finding->kind == "timed-out" || candidate_.deaths() >= most_deaths) stopped_ = true;
      explain(driver_, property, c, candidate_, settings_.fixtures, record);
    } else {
      add_ratios(record.worst_ratio, c.dtype, outcome);
      if (sets_line(property, *expectation)) line_.draw(driver_, c, outcome);
    }
    // A waived case counts like any other for what the plan can see.
    if (!record.finding && !candidate_failed()) hand_over(property, expectation);
    record.seconds += seconds_since(start);
  }

  bool candidate_failed() const {
    return std::any_of(result_.properties.begin(), result_.properties.end(),
                       [](const PropertyResult& r) { return r.finding.has_value(); });
  }

  bool block_too_large() const {
    const auto block = plan_.settings.find("block");
    return block != plan_.settings.end() && block->second > plan_.generation.block;
  }

  // The others follow the candidate on the other core, a case at a time, so nothing that they touch needs a lock.
  void hand_over(const Property& property, const std::shared_ptr<Expectation>& expectation) {
    others_.add(value_count(expectation->problem().inputs), [this, &property, expectation] {
      shown_.emplace_back(property.name, measure_.run(property, *expectation, sets_line(property, *expectation)));
    });
  }

  void join_others() {
    others_.join();
    for (const auto& [property, shown] : shown_) {
      for (const auto& [tensor, ratio] : shown.ratio) {
        double& worst = of(property).known_good_ratio[tensor];
        worst = std::max(worst, ratio);
      }
      line_.known_good(shown.line);
      // A reference that breaks its own contract is a finding of ours, and no basis for any verdict.
      distrusted_ = distrusted_ || !shown.complaints.empty();
      result_.reasons.insert(result_.reasons.end(), shown.complaints.begin(), shown.complaints.end());
    }
  }

  void conclude() {
    result_.kernel = plan_.kernel;
    result_.candidate = plan_.candidate;
    result_.summary = candidate_.form().summary;
    result_.settings = plan_.settings;
    result_.contract_version = plan_.contract_version;
    result_.plan_hash = plan_.hash;
    result_.seed = plan_.generation.seed;
    result_.preset = plan_.preset;
    for (DType dtype : plan_.generation.dtypes) result_.dtypes.emplace_back(name(dtype));
    result_.partial = settings_.partial;
    if (result_.partial) result_.only = plan_.properties;
    result_.waived = settings_.waived;
    result_.known_good = plan_.known_good;
    if (!candidate_failed() && !stopped_ && !out_of_budget_)
      out_of_budget_ = !measure_.finish([this] { return seconds_since(start_) > settings_.budget.count(); });
    result_.kills = measure_.kills();
    const bool failed = candidate_failed();
    result_.power_measured = !failed && !stopped_ && !out_of_budget_ && contains(plan_.properties, "power");
    result_.machine = this_machine();
    result_.candidate_output = candidate_.output_tail();
    for (const auto& [property, reason] : line_.exceeded()) of(property).reason = reason;
    for (PropertyResult& record : result_.properties) settle(record);
    decide();
    result_.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                  fmt::gmtime(std::time(nullptr) - static_cast<std::time_t>(seconds_since(start_))));
    result_.seconds = seconds_since(start_);
  }

  // The verdict of one property, from what was counted.
  void settle(PropertyResult& record) {
    if (record.elements > 0 &&
        static_cast<double>(record.undecidable) > most_undecidable * static_cast<double>(record.elements))
      record.reason = fmt::format("{} of {} elements have no bound", record.undecidable, record.elements);
    if (record.finding)
      record.verdict = record.finding->broken ? "FAILED" : "DIFFERENT";
    else if (record.cases < record.planned)
      record.verdict = record.cases == 0 ? "NOT RUN" : "UNDECIDED";
    else if (!record.reason.empty())
      record.verdict = "UNDECIDED";
    else if (!record.waived.empty())
      record.verdict = "WAIVED";
    else
      record.verdict = "PASSED";
    if (record.cases < record.planned && !record.finding && record.reason.empty())
      record.reason = fmt::format("{} of {} cases were run", record.cases, record.planned);
  }

  // The worst fact decides: a broken run before other numbers, those before doubt about the run itself, that before
  // doubt about the numbers.
  void decide() {
    if (!candidate_.form().trouble.empty()) {
      result_.verdict = Verdict::failed;
      result_.reasons = {candidate_.form().trouble};
      return;
    }
    if (block_too_large()) {
      result_.verdict = Verdict::mistrusted;
      result_.reasons = {
          fmt::format("no sequence of the plan fills a block of {}; the largest block that it can fill is {}",
                      plan_.settings.at("block"), plan_.generation.block)};
      return;
    }
    Verdict verdict = Verdict::equivalent;
    const auto raise = [&](Verdict to, const std::string& reason) {
      static constexpr Verdict order[] = {Verdict::equivalent, Verdict::undecided, Verdict::mistrusted,
                                          Verdict::different, Verdict::failed};
      const auto rank = [](Verdict v) { return std::find(std::begin(order), std::end(order), v); };
      if (rank(to) > rank(verdict)) verdict = to;
      if (!reason.empty()) result_.reasons.push_back(reason);
    };
    for (const PropertyResult& record : result_.properties) {
      if (record.finding)
        raise(record.finding->broken ? Verdict::failed : Verdict::different,
              fmt::format("{}: {}", record.name, record.finding->text));
      else if (!record.reason.empty())
        raise(Verdict::undecided, fmt::format("{}: {}", record.name, record.reason));
    }
    if (verdict == Verdict::different || verdict == Verdict::failed) {
      result_.verdict = verdict;
      return;
    }
    if (distrusted_) raise(Verdict::mistrusted, "");
    if (out_of_budget_)
      raise(Verdict::undecided,
            fmt::format("the budget of {} was spent before the plan was through", time_text(settings_.budget.count())));
    if (result_.partial)
      raise(Verdict::undecided, fmt::format("partial: only {} was asked for; nothing wrong was found in it",
                                            fmt::join(plan_.properties, ", ")));
    else if (!out_of_budget_) {
      if (const auto missing = result_.coverage.missing(); !missing.empty())
        raise(Verdict::mistrusted, fmt::format("the plan covered too little: no case of {}", fmt::join(missing, ", ")));
      std::vector<std::string> survivors;
      for (const Kill& kill : result_.kills)
        if (!kill.killed) survivors.push_back(kill.form);
      if (result_.power_measured && !survivors.empty())
        raise(Verdict::mistrusted, fmt::format("the plan does not see {} known-wrong form(s): {}", survivors.size(),
                                               fmt::join(survivors, ", ")));
      if (result_.power_measured && result_.kills.empty())
        raise(Verdict::mistrusted, "no known-wrong form measured what the plan can see");
    }
    result_.verdict = verdict;
  }

  const Driver& driver_;
  const Plan& plan_;
  const JudgeSettings& settings_;
  Attached candidate_;
  Measure measure_;
  Result result_;
  TighterLine line_;
  std::vector<std::pair<std::string, Shown>> shown_;  // by property; of the cases that the others have run
  Clock::time_point start_ = Clock::now();
  bool stopped_ = false, out_of_budget_ = false, distrusted_ = false;
  Trailing others_{most_waiting};  // last, so that its thread ends before what it works on
};

}  // namespace

Result judge(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings) {
  return Run(workshop, driver, plan, settings).result();
}

}  // namespace fractus
