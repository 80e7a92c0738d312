#include "harness/battery.h"

#include <fmt/format.h>

#include <memory>

#include "harness/attached.h"
#include "harness/by_two.h"
#include "harness/clock.h"
#include "harness/explain.h"
#include "harness/measure.h"
#include "harness/tighter_line.h"
#include "reports/verdict.h"
#include "reports/words.h"

namespace fractus {
namespace {

// A function that no case has shown to be wrong yet.
struct Living {
  Living(Attached f, Tried* t) : form(std::move(f)), tried(t) {}
  Attached form;
  Tried* tried;
  TighterLine line;
};

class Run {
 public:
  Run(Workshop& workshop, const Driver& driver, const Plan& plan, const BatterySettings& settings)
      : workshop_(workshop), driver_(driver), plan_(plan), settings_(settings), measure_(workshop, driver, plan) {}

  BatteryResult result(const std::vector<std::string>& candidates) {
    result_.functions.resize(candidates.size());
    for (std::size_t i = 0; i < candidates.size(); ++i) load(candidates[i], result_.functions[i]);
    for (std::size_t i = 0; i < plan_.cases.size() && !living_.empty(); ++i) {
      if (settings_.progress)
        settings_.progress({plan_.cases[i].property, i, plan_.cases.size(), seconds_since(start_)});
      if (seconds_since(start_) > settings_.budget.count()) {
        result_.out_of_budget = true;
        break;
      }
      run_case(plan_.cases[i]);
      ++result_.cases;
    }
    for (const auto& one : living_) conclude(*one);
    living_.clear();  // before the processes that theirs are forked from
    for (const Tried& one : result_.functions) workshop_.unload(plan_.kernel, one.candidate);
    result_.seconds = seconds_since(start_);
    return std::move(result_);
  }

 private:
  void load(const std::string& candidate, Tried& tried) {
    const Clock::time_point start = Clock::now();
    tried.candidate = candidate;
    try {
      const FormInfo& form = workshop_.load(plan_.kernel, candidate);
      tried.summary = form.summary;
      tried.reason = form.trouble;
      if (form.trouble.empty()) living_.push_back(std::make_unique<Living>(Attached(workshop_, form, {}), &tried));
    } catch (const outside::NotThere& error) {
      tried.reason = error.what();
    }
    if (!tried.reason.empty()) {
      tried.verdict = Verdict::failed;
      tried.property = "loading";
    }
    tried.seconds += seconds_since(start);
  }

  // Whether the form got through, with which the case's expectation is evaluated.
  bool put_to(Living& one, const Property& property, Expectation& expectation) {
    const Clock::time_point start = Clock::now();
    const Outcome outcome = property.check(expectation, one.form.subject());
    ++one.tried->cases;
    const bool found = outcome.finding && !contains(settings_.waived, outcome.finding->waiver);
    if (found) {
      PropertyResult record;
      record.finding = outcome.finding;
      explain(driver_, property, expectation.of(), one.form, settings_.fixtures, record);
      one.tried->property = property.name;
      one.tried->verdict = record.finding->broken ? Verdict::failed : Verdict::different;
      one.tried->reason = record.finding->text;
      one.tried->finding = std::move(record.finding);
      one.tried->witness = std::move(record.witness);
    } else if (sets_line(property, expectation)) {
      one.line.draw(driver_, expectation.of(), outcome);
    }
    one.tried->seconds += seconds_since(start);
    return !outcome.finding;
  }

  void run_case(const Case& c) {
    const Property& property = *find_property(c.property);
    Expectation expectation(driver_, c, 2);
    // One after the other until one is through: an expectation is evaluated by whoever asks first, and from then on it
    // is only read.
    std::size_t first = 0;
    while (first < living_.size() && !put_to(*living_[first], property, expectation)) ++first;
    const std::size_t from = std::min(first + 1, living_.size());
    const bool evaluated = first < living_.size();
    const std::size_t line = evaluated && sets_line(property, expectation) ? 1 : 0;
    Shown shown;
    by_two(line + living_.size() - from, [&](std::size_t i) {
      if (i < line)
        shown = measure_.run(property, expectation, /*known_good=*/true);
      else
        put_to(*living_[from + i - line], property, expectation);
    });
    for (const auto& one : living_) one->line.known_good(c.property, shown.line);
    result_.complaints.insert(result_.complaints.end(), shown.complaints.begin(), shown.complaints.end());
    std::erase_if(living_, [](const auto& one) { return one->tried->finding.has_value(); });
  }

  void conclude(Living& one) {
    const std::vector<Quarantine> quarantines = exceeded(one.line.lines());
    one.tried->verdict = quarantines.empty() && !result_.out_of_budget ? Verdict::equivalent : Verdict::undecided;
    if (!quarantines.empty()) {
      one.tried->property = quarantines.front().property;
      one.tried->reason = quarantines.front().reason;
    } else if (result_.out_of_budget) {
      one.tried->reason = fmt::format("the budget of {} was spent", time_text(settings_.budget.count()));
    }
  }

  Workshop& workshop_;
  const Driver& driver_;
  const Plan& plan_;
  const BatterySettings& settings_;
  Measure measure_;
  BatteryResult result_;
  std::vector<std::unique_ptr<Living>> living_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

BatteryResult battery(Workshop& workshop, const Driver& driver, const Plan& plan,
                      const std::vector<std::string>& candidates, const BatterySettings& settings) {
  return Run(workshop, driver, plan, settings).result(candidates);
}

}  // namespace fractus
