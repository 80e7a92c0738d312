#include "harness/judge.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <future>

#include "harness/attached.h"
#include "harness/explain.h"
#include "harness/machine.h"
#include "properties/cases.h"
#include "reports/words.h"

namespace fractus {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The tighter line: a candidate whose worst ratio is this many times that of the known-good forms on the same cases is
// set apart for a person, not refused (DESIGN.md, property 3). Fewer cases than this have no worst worth the name.
constexpr double quarantine_factor = 4;
constexpr int quarantine_cases = 10;
// Above this share of elements without a bound a property has not been tried in earnest.
constexpr double most_undecidable = 0.25;
// Known-good forms run the cases up to this size; beyond it the quadratic reference would cost more than all the rest.
constexpr std::int64_t most_elements_for_all = 20'000;
constexpr int most_deaths = 3;  // of the candidate's process, after which the run stops

std::int64_t size_of(const Problem& problem) {
  std::int64_t elements = 0;
  for (const auto& input : problem.inputs)
    if (input) elements += static_cast<std::int64_t>(input->values.size());
  return elements;
}

void add_ratios(std::map<std::string, double>& ratios, DType dtype, const Outcome& outcome) {
  for (const auto& [tensor, ratio] : outcome.worst_ratio) {
    double& worst = ratios[fmt::format("{} {}", name(dtype), tensor)];
    worst = std::max(worst, ratio);
  }
}

// The tighter line of one tensor over sequences of one length. The bound of a short sequence is a few roundings wide
// and right forms come near it; that of a long one is hardly used, so the two have lines of their own.
struct Line {
  double candidate = 0, known_good = 0;
  int cases = 0;
  std::string property, where;  // of the candidate's worst
};

// One known-wrong form while it lives.
struct Wrong {
  Attached form;
  Kill kill;
};

using Settings = std::map<std::string, std::int64_t>;

class Run {
 public:
  Run(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings)
      : workshop_(workshop),
        driver_(driver),
        plan_(plan),
        settings_(settings),
        candidate_(attach(plan.candidate, plan.settings)) {
    for (const std::string& name : plan.known_good) good_.push_back(attach(name, {}));
    for (const std::string& name : plan.known_wrong) {
      // Faults between blocks show where the shapes have borders, so a known-wrong form takes the plan's block.
      const bool has_block = workshop.find_form(plan.kernel, name)->settings.contains("block");
      Attached form = attach(name, has_block ? Settings{{"block", plan.generation.block}} : Settings{});
      Kill kill{.form = name, .summary = form.form().summary};
      wrong_.push_back({std::move(form), std::move(kill)});
    }
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
    for (std::size_t i = 0; i < plan_.cases.size() && !stopped_; ++i) {
      if (settings_.progress)
        settings_.progress({plan_.cases[i].property, i, plan_.cases.size(), seconds_since(start_)});
      if (std::chrono::duration<double>(Clock::now() - start_) > settings_.budget) {
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
  Attached attach(const std::string& name, const Settings& settings) const {
    return {workshop_, *workshop_.find_form(plan_.kernel, name), settings};
  }

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
      if (sets_line(property, *expectation)) draw_line(c, outcome);
    }
    // The others take this case while the candidate takes the next: one core each. They keep the plan's order. A waived
    // case counts like any other for what the plan can see.
    if (!record.finding) {
      join_others();
      const bool known_good = sets_line(property, *expectation);
      if (!candidate_failed())
        others_ = std::async(std::launch::async, [this, &property, expectation, known_good] {
          return run_others(property, *expectation, known_good);
        });
    }
    record.seconds += seconds_since(start);
  }

  void draw_line(const Case& c, const Outcome& outcome) {
    for (const auto& [tensor, ratio] : outcome.worst_ratio) {
      Line& line = lines_[fmt::format("{} {}", tensor, size_class(driver_, c))];
      ++line.cases;
      if (ratio <= line.candidate) continue;
      line.candidate = ratio;
      line.property = c.property;
      line.where = label(c);
    }
  }

  bool candidate_failed() const {
    return std::any_of(result_.properties.begin(), result_.properties.end(),
                       [](const PropertyResult& r) { return r.finding.has_value(); });
  }

  static bool sets_line(const Property& property, const Expectation& expectation) {
    return property.compared_with_known_good && size_of(expectation.problem()) <= most_elements_for_all;
  }

  // What the known-good forms showed on one case. The kills are kept in wrong_, which no one else touches meanwhile.
  struct Others {
    std::string property;
    std::map<std::string, double> ratio;  // by "dtype tensor", for the report
    std::map<std::string, double> line;   // by "tensor size", for the tighter line
    std::vector<std::string> complaints;
  };

  // `expectation` has been evaluated for the candidate, so that it is only read here.
  Others run_others(const Property& property, Expectation& expectation, bool known_good) {
    const Case& c = expectation.of();
    Others others{.property = c.property};
    if (known_good)
      for (Attached& form : good_) {
        const Outcome its = property.check(expectation, form.subject());
        if (its.finding) {  // its ratios would loosen the line
          others.complaints.push_back(fmt::format("the known-good form '{}' itself fails {}: {} ({})", form.form().name,
                                                  c.property, its.finding->text, label(c)));
          continue;
        }
        add_ratios(others.ratio, c.dtype, its);
        for (const auto& [tensor, ratio] : its.worst_ratio) {
          double& worst = others.line[fmt::format("{} {}", tensor, size_class(driver_, c))];
          worst = std::max(worst, ratio);
        }
      }
    for (Wrong& wrong : wrong_) {
      if (wrong.kill.killed) continue;
      const Outcome its = property.check(expectation, wrong.form.subject());
      if (its.finding)
        wrong.kill = {wrong.kill.form,   wrong.kill.summary,  true,    c.property,
                      its.finding->kind, its.finding->tensor, label(c)};
    }
    return others;
  }

  // A verdict on one dtype says nothing of faults that show in the other alone (a lost float64 epsilon): a survivor
  // that the same cases catch in the other dtype is named as such, and is no gap of this plan.
  void set_apart_other_dtype() {
    const DType other = plan_.generation.dtypes.front() == DType::float32 ? DType::float64 : DType::float32;
    for (Wrong& wrong : wrong_)
      for (std::size_t i = 0; i < plan_.cases.size() && !wrong.kill.killed; ++i) {
        Case c = plan_.cases[i];
        c.dtype = other;
        const Property& property = *find_property(c.property);
        Expectation expectation(driver_, c, 2);
        const Outcome its = property.check(expectation, wrong.form.subject());
        if (its.finding)
          wrong.kill = {
              wrong.kill.form,   wrong.kill.summary,  true,    fmt::format("{} ({} only)", c.property, name(other)),
              its.finding->kind, its.finding->tensor, label(c)};
      }
  }

  void join_others() {
    if (!others_.valid()) return;
    const Others others = others_.get();
    for (const auto& [tensor, ratio] : others.ratio) {
      double& worst = of(others.property).known_good_ratio[tensor];
      worst = std::max(worst, ratio);
    }
    for (const auto& [key, ratio] : others.line) lines_[key].known_good = std::max(lines_[key].known_good, ratio);
    // A reference that breaks its own contract is a finding of ours, and no basis for any verdict.
    distrusted_ = distrusted_ || !others.complaints.empty();
    result_.reasons.insert(result_.reasons.end(), others.complaints.begin(), others.complaints.end());
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
    if (plan_.generation.dtypes.size() == 1 && !candidate_failed() && !stopped_ && !out_of_budget_)
      set_apart_other_dtype();
    for (const Wrong& wrong : wrong_) result_.kills.push_back(wrong.kill);
    const bool failed = candidate_failed();
    result_.power_measured = !failed && !stopped_ && !out_of_budget_ && contains(plan_.properties, "power");
    result_.machine = this_machine();
    result_.candidate_output = candidate_.output_tail();
    quarantine();
    for (PropertyResult& record : result_.properties) settle(record);
    decide();
    result_.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                                  fmt::gmtime(std::time(nullptr) - static_cast<std::time_t>(seconds_since(start_))));
    result_.seconds = seconds_since(start_);
  }

  void quarantine() {
    for (const auto& [key, line] : lines_)
      if (line.cases >= quarantine_cases && line.known_good > 0 && line.candidate > quarantine_factor * line.known_good)
        of(line.property).reason = fmt::format(
            "quarantined: {} reaches {:.3g} of its bound, the known-good forms {:.3g} on the same {} cases; its worst "
            "is at {}",
            key, line.candidate, line.known_good, line.cases, line.where);
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
      if (const auto block = plan_.settings.find("block");
          block != plan_.settings.end() && block->second > plan_.generation.block)
        raise(Verdict::mistrusted,
              fmt::format("the plan covered too little: no sequence of it fills a block of {}; the "
                          "largest that it can fill is {}",
                          block->second, plan_.generation.block));
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

  const Workshop& workshop_;
  const Driver& driver_;
  const Plan& plan_;
  const JudgeSettings& settings_;
  Attached candidate_;
  std::deque<Attached> good_;
  std::deque<Wrong> wrong_;
  Result result_;
  std::map<std::string, Line> lines_;  // by "tensor size"
  std::future<Others> others_;
  Clock::time_point start_ = Clock::now();
  bool stopped_ = false, out_of_budget_ = false, distrusted_ = false;
};

}  // namespace

Result judge(const Workshop& workshop, const Driver& driver, const Plan& plan, const JudgeSettings& settings) {
  return Run(workshop, driver, plan, settings).result();
}

}  // namespace fractus
