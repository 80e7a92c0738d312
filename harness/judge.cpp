#include "harness/judge.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/attached.h"
#include "harness/audited.h"
#include "harness/clock.h"
#include "harness/explain.h"
#include "harness/machine.h"
#include "harness/measure.h"
#include "harness/trailing.h"
#include "properties/cases.h"
#include "properties/over_field.h"
#include "reports/verdict.h"
#include "reports/words.h"

namespace fractus {
namespace {

// By how much the known-good and known-wrong forms may be behind, in elements of input: it bounds the memory of what
// waits, about 100 bytes an element.
constexpr std::size_t most_waiting = 4'000'000;
constexpr int most_not_algebraic =
    3;                          // cases of identity, after which the others are not tried: most would say the same
constexpr int most_deaths = 3;  // of a judged form's process, after which it is called no more

void add_ratios(std::map<std::string, double>& ratios, DType dtype, const Outcome& outcome) {
  for (const auto& [tensor, ratio] : outcome.worst_ratio) {
    double& worst = ratios[fmt::format("{} {}", name(dtype), tensor)];
    worst = std::max(worst, ratio);
  }
}

void add_histograms(std::map<std::string, Histogram>& histograms, DType dtype, const Outcome& outcome) {
  for (const auto& [tensor, histogram] : outcome.histogram)
    histograms[fmt::format("{} {}", name(dtype), tensor)].add(histogram);
}

std::vector<PropertyResult> planned(const Plan& plan) {
  std::vector<PropertyResult> records;
  for (const std::string& name : plan.properties) {
    if (name == "power") continue;
    PropertyResult record;
    record.name = name;
    record.proves = find_property(name)->proves;
    record.planned =
        std::count_if(plan.cases.begin(), plan.cases.end(), [&](const Case& c) { return c.property == name; });
    records.push_back(std::move(record));
  }
  return records;
}

PropertyResult& record_of(std::vector<PropertyResult>& records, const std::string& property) {
  return *std::find_if(records.begin(), records.end(), [&](const PropertyResult& r) { return r.name == property; });
}

// Puts the case to a form that is judged, and adds what it shows to the record of its property.
Outcome put(const Property& property, Expectation& expectation, Attached& form, const std::vector<std::string>& waived,
            PropertyResult& record) {
  Outcome outcome = property.check(expectation, form.subject());
  ++record.cases;
  record.elements += outcome.elements;
  record.undecidable += outcome.undecidable;
  record.choices_in_doubt += outcome.choices_in_doubt;
  record.choices_flipped += outcome.choices_flipped;
  record.flip_moves = std::max(record.flip_moves, outcome.flip_moves);
  record.bit_equal += outcome.bit_equal;
  if (outcome.escape) record.escape = std::max(record.escape, *outcome.escape);
  if (!outcome.note.empty() && !contains(record.notes, outcome.note)) record.notes.push_back(outcome.note);
  if (!outcome.claim.empty()) record.claims.push_back(outcome.claim);
  if (record.algebra.empty() || outcome.finding) record.algebra = outcome.algebra;
  if (!record.not_algebraic) record.not_algebraic = outcome.not_algebraic;
  record.held.insert(record.held.end(), outcome.held.begin(), outcome.held.end());
  const bool lets_pass = outcome.finding && contains(waived, outcome.finding->waiver);
  if (!outcome.finding)
    add_ratios(record.worst_ratio, expectation.of().dtype, outcome);
  else if (lets_pass)
    ++record.waived[outcome.finding->waiver];
  else
    record.finding = outcome.finding;
  if (!lets_pass) add_histograms(record.histogram, expectation.of().dtype, outcome);
  return outcome;
}

// The case that shows the finding: that of a fault over floats where it was found over a finite field.
Case shown_at(const Outcome& outcome, const Case& c) { return outcome.witness.value_or(c); }

// A form that hangs or keeps dying would cost its whole time limit again and again.
bool goes_on(const Attached& form, const PropertyResult& record) {
  return !record.finding || (record.finding->kind != "timed-out" && form.deaths() < most_deaths);
}

class Run {
 public:
  Run(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings)
      : driver_(driver),
        plan_(plan),
        settings_(settings),
        candidate_(workshop, candidate_of(workshop, plan), plan.settings),
        measure_(workshop, driver, plan) {
    result_.coverage = blank_coverage(driver, plan.generation);
    result_.properties = planned(plan);
    if (plan.reference.empty()) return;
    reference_.emplace(workshop, *workshop.find_form(plan.kernel, plan.reference), plan.reference_settings);
    reference_goes_on_ = reference_->form().trouble.empty();
    result_.reference = Reference{.properties = planned(plan)};
  }

  Result result() {
    stopped_ = block_too_large() || !candidate_.form().trouble.empty();  // nothing that follows could make up for it
    for (std::size_t i = 0; i < plan_.cases.size() && !stopped_; ++i) {
      if (settings_.progress)
        settings_.progress({plan_.cases[i].property, i, plan_.cases.size(), seconds_since(start_)});
      if (out_of_time()) {
        out_of_budget_ = true;
        break;
      }
      run_case(plan_.cases[i]);
    }
    join_others();
    complete();
    return std::move(result_);
  }

 private:
  PropertyResult& of(const std::string& property) { return record_of(result_.properties, property); }

  void run_case(const Case& c) {
    PropertyResult& record = of(c.property);
    if (record.finding) return;  // one witness a property is enough; the others are still to be tried
    if (record.not_algebraic && ++not_algebraic_ >= most_not_algebraic) return;
    const Clock::time_point start = Clock::now();
    const Property& property = *find_property(c.property);
    const auto expectation = std::make_shared<Expectation>(driver_, c, 2);
    const Outcome outcome = put(property, *expectation, candidate_, settings_.waived, record);
    count(result_.coverage, driver_, plan_.generation, c, outcome);
    add_remarks(over_field_, outcome.remarks);
    if (record.finding) {
      stopped_ = !goes_on(candidate_, record);
      const Case shown = shown_at(outcome, c);
      explain(driver_, *find_property(shown.property), shown, candidate_, settings_.fixtures, record);
    } else if (!outcome.finding && sets_line(property, *expectation)) {
      line_.draw(driver_, c, outcome);
    }
    hand_over(property, expectation);
    record.seconds += seconds_since(start);
  }

  // What it fails is explained at the end, so that one thread at a time writes witnesses.
  void run_reference(const Property& property, Expectation& expectation) {
    PropertyResult& record = record_of(result_.reference->properties, property.name);
    if (!reference_goes_on_ || record.finding || record.not_algebraic) return;
    const Clock::time_point start = Clock::now();
    const Outcome outcome = put(property, expectation, *reference_, settings_.waived, record);
    reference_goes_on_ = goes_on(*reference_, record);
    const Case shown = shown_at(outcome, expectation.of());
    if (record.finding) record.witness = Witness{.found = shown, .smallest = shown};
    record.seconds += seconds_since(start);
  }

  bool out_of_time() const { return seconds_since(start_) > settings_.budget.count(); }

  bool candidate_failed() const {
    return std::any_of(result_.properties.begin(), result_.properties.end(),
                       [](const PropertyResult& r) { return r.finding.has_value(); });
  }

  bool block_too_large() const {
    const auto block = plan_.settings.find("block");
    return block != plan_.settings.end() && block->second > plan_.generation.block;
  }

  // The others follow the candidate on the other core, a case at a time, so nothing that they touch needs a lock. A
  // waived case counts like any other for what the plan can see; once the candidate has failed, the reference alone
  // follows.
  void hand_over(const Property& property, const std::shared_ptr<Expectation>& expectation) {
    const bool measured = !candidate_failed();
    if (!measured && !reference_) return;
    others_.add(value_count(expectation->problem().inputs), [this, &property, expectation, measured] {
      if (out_of_time()) {  // they may be seconds behind
        others_out_of_budget_ = true;
        return;
      }
      if (reference_) run_reference(property, *expectation);
      if (!measured) return;
      shown_.emplace_back(property.name, measure_.run(property, *expectation, sets_line(property, *expectation)));
    });
  }

  void join_others() {
    others_.join();
    out_of_budget_ = out_of_budget_ || others_out_of_budget_;
    for (const auto& [property, shown] : shown_) {
      for (const auto& [tensor, ratio] : shown.ratio) {
        double& worst = of(property).known_good_ratio[tensor];
        worst = std::max(worst, ratio);
      }
      line_.known_good(property, shown.line);
      result_.shared_edges.insert(shown.edges.begin(), shown.edges.end());  // the first of each form
      result_.complaints.insert(result_.complaints.end(), shown.complaints.begin(), shown.complaints.end());
    }
  }

  void complete() {
    result_.kernel = plan_.kernel;
    result_.candidate = plan_.candidate;
    result_.recomputes = plan_.recomputes;
    result_.summary = candidate_.form().summary;
    result_.settings = plan_.settings;
    result_.contract_version = plan_.contract_version;
    result_.plan_hash = plan_.hash;
    result_.plan_of = plan_.plan_of;
    result_.plan_properties = plan_.plan_properties;
    result_.seed = plan_.generation.seed;
    result_.preset = plan_.preset;
    for (DType dtype : plan_.generation.dtypes) result_.dtypes.emplace_back(name(dtype));
    result_.partial = settings_.partial;
    if (result_.partial) result_.only = plan_.properties;
    result_.waived = settings_.waived;
    result_.known_good = plan_.known_good;
    if (!candidate_failed() && !stopped_ && !out_of_budget_)
      out_of_budget_ = !measure_.finish([this] { return out_of_time(); });
    if (!stopped_ && !out_of_budget_) result_.audit = audited(driver_, plan_, candidate_);
    for (const Remark& remark : over_field_)
      if (std::none_of(result_.audit.begin(), result_.audit.end(), [&](const Remark& known) {
            return known.kind == remark.kind && known.operation == remark.operation && known.place == remark.place;
          }))
        result_.audit.push_back(remark);
    result_.kills = measure_.kills();
    result_.forward_only = plan_.generation.forward_only;
    result_.backward_alone = measure_.backward_alone();
    const bool failed = candidate_failed();
    result_.power_measured = !failed && !stopped_ && !out_of_budget_ && contains(plan_.properties, "power");
    result_.machine = machine_of_run();
    result_.candidate_output = candidate_.output_tail();
    result_.lines = line_.lines();
    result_.trouble = candidate_.form().trouble;
    if (block_too_large())
      result_.unfit =
          fmt::format("no sequence of the plan fills a block of {}; the largest block that it can fill is {}",
                      plan_.settings.at("block"), plan_.generation.block);
    if (out_of_budget_)
      result_.cut =
          fmt::format("the budget of {} was spent before the plan was through", time_text(settings_.budget.count()));
    if (result_.reference) complete_reference(*result_.reference);
    conclude(result_);
    result_.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                  fmt::gmtime(std::time(nullptr) - static_cast<std::time_t>(seconds_since(start_))));
    result_.seconds = seconds_since(start_);
  }

  void complete_reference(Reference& reference) {
    const FormInfo& form = reference_->form();
    reference.name = plan_.reference;
    reference.summary = form.summary;
    reference.settings = plan_.reference_settings;
    reference.trouble = form.trouble;
    for (PropertyResult& record : reference.properties) {
      if (!record.finding) continue;
      const Case found = record.witness->found;
      explain(driver_, *find_property(found.property), found, *reference_, settings_.fixtures, record);
    }
    reference.output = reference_->output_tail();
  }

  const Driver& driver_;
  const Plan& plan_;
  const JudgeSettings& settings_;
  Attached candidate_;
  Measure measure_;
  Result result_;
  TighterLine line_;
  std::vector<Remark> over_field_;                    // of the calls over a finite field
  std::vector<std::pair<std::string, Shown>> shown_;  // by property; of the cases that the others have run
  std::optional<Attached> reference_;                 // it and its records are the others' until they have ended
  bool reference_goes_on_ = false;
  Clock::time_point start_ = Clock::now();
  bool stopped_ = false, out_of_budget_ = false;
  int not_algebraic_ = 0;              // cases of identity since the candidate could not be judged by one
  bool others_out_of_budget_ = false;  // theirs until they have ended
  Trailing others_{most_waiting};      // last, so that its thread ends before what it works on
};

}  // namespace

Result judge(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings) {
  return Run(workshop, driver, plan, settings).result();
}

}  // namespace fractus
