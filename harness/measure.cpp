#include "harness/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/by_two.h"
#include "properties/cases.h"

namespace fractus {
namespace {

// "repeat layers" is the property and its variant; "repeat" all of its variants.
std::string property_of(const std::string& shown_by) { return shown_by.substr(0, shown_by.find(' ')); }

bool is_meant(const std::string& shown_by, const Case& c) {
  return shown_by == c.property || shown_by == c.property + " " + c.variant;
}

}  // namespace

Measure::Measure(const Workshop& workshop, const Driver& driver, const Plan& plan) : driver_(driver), plan_(plan) {
  for (const std::string& name : plan.known_good)
    good_.emplace_back(workshop, *workshop.find_form(plan.kernel, name), std::map<std::string, std::int64_t>{});
  const auto hint_holds = [&plan](const std::string& property) {
    return contains(plan.properties, property) || std::any_of(plan.with_backward.begin(), plan.with_backward.end(),
                                                              [&](const Case& c) { return c.property == property; });
  };
  for (const std::string& name : plan.known_wrong) {
    const FormInfo& info = *workshop.find_form(plan.kernel, name);
    std::map<std::string, std::int64_t> settings;
    // Faults between blocks show where the shapes have borders, so a known-wrong form takes the plan's block; those
    // inside a block need two tokens in it.
    if (info.settings.contains("block"))
      settings["block"] = std::clamp<std::int64_t>(plan.generation.block, 2, driver.longest_wrong_block);
    wrong_.push_back({.form = Attached(workshop, info, settings),
                      .kill = {.form = name, .summary = info.summary},
                      .shown_by = hint_holds(property_of(info.shown_by)) ? info.shown_by : ""});
  }
}

Shown Measure::run(const Property& property, Expectation& expectation, bool known_good) {
  const Case& c = expectation.of();
  const std::vector<Wrong*> wrong = !property.measures_power ? std::vector<Wrong*>{} : living([&](const Wrong& form) {
    return form.shown_by.empty() || is_meant(form.shown_by, c);
  });
  const std::size_t good = known_good ? good_.size() : 0;
  std::vector<Outcome> outcomes(good);
  by_two(good + wrong.size(), [&](std::size_t i) {
    if (i < good)
      outcomes[i] = property.check(expectation, good_[i].subject());
    else
      try_on(property, expectation, *wrong[i - good], "");
  });

  Shown shown;
  for (std::size_t i = 0; i < good; ++i) {
    if (const auto& finding = outcomes[i].finding) {  // its ratios would loosen the line
      const std::string& form = good_[i].form().name;
      if (finding->waiver == "shared-edges")
        shown.edges.emplace(form, fmt::format("{} ({})", finding->text, label(c)));
      else
        shown.complaints.push_back(fmt::format("the known-good form '{}' itself fails {}: {} ({})", form, c.property,
                                               finding->text, label(c)));
      continue;
    }
    for (const auto& [tensor, ratio] : outcomes[i].worst_ratio) {
      double& worst = shown.ratio[fmt::format("{} {}", name(c.dtype), tensor)];
      worst = std::max(worst, ratio);
      if (!on_line(driver_, c)) continue;
      double& line = shown.line[line_key(driver_, tensor, c)];
      line = std::max(line, ratio);
    }
  }
  return shown;
}

void Measure::try_on(const Property& property, Expectation& expectation, Wrong& wrong, const std::string& note) {
  if (property.of_recompute && wrong.form.form().recomputes.empty()) return;  // it would differ in every bit
  const Outcome its = property.check(expectation, wrong.form.subject());
  if (!its.finding) return;
  wrong.kill.killed = true;
  wrong.kill.property = property.name + note;
  wrong.kill.kind = its.finding->kind;
  wrong.kill.tensor = its.finding->tensor;
  wrong.kill.where = label(expectation.of());
}

// Puts one case to the forms; false where there is no time left for it.
bool Measure::put(Case c, const std::vector<Wrong*>& forms, const std::string& note,
                  const std::function<bool()>& out_of_time) {
  const Property& property = *find_property(c.property);
  if (forms.empty() || !property.measures_power) return true;
  if (out_of_time()) return false;
  by_two(forms.size(), [&](std::size_t i) {
    Expectation expectation(driver_, c, 1);  // one each: it is evaluated by whoever asks first
    try_on(property, expectation, *forms[i], note);
  });
  return true;
}

bool Measure::finish(const std::function<bool()>& out_of_time) {
  std::optional<DType> other;  // that the run leaves out
  std::string note;
  if (plan_.generation.dtypes.size() == 1) {
    other = plan_.generation.dtypes.front() == DType::float32 ? DType::float64 : DType::float32;
    note = fmt::format(" ({} only)", name(*other));
  }
  const auto set_backward_apart = [&](const std::function<bool(const Wrong&, const Case&)>& which,
                                      std::optional<DType> dtype = std::nullopt) {
    for (Case c : plan_.with_backward) {
      c.dtype = dtype.value_or(c.dtype);
      const std::vector<Wrong*> forms = living([&](const Wrong& form) { return which(form, c); });
      if (!put(c, forms, dtype ? note : "", out_of_time)) return false;
      for (Wrong* form : forms)
        if (form->kill.killed) set_apart(c, *form);
    }
    return true;
  };
  // Those that a gradient is meant to show first: nothing else of the plan would, and each case costs them a call.
  if (!set_backward_apart([](const Wrong& form, const Case& c) { return is_meant(form.shown_by, c); })) return false;
  for (const Case& c : plan_.cases)
    if (!put(c, living([&](const Wrong& form) { return !form.shown_by.empty() && !is_meant(form.shown_by, c); }), "",
             out_of_time))
      return false;
  if (other)
    for (Case c : plan_.cases) {
      c.dtype = *other;
      if (!put(c, living(), note, out_of_time)) return false;
    }
  const auto any = [](const Wrong&, const Case&) { return true; };
  return set_backward_apart(any) && (!other || set_backward_apart(any, other));
}

// A form that fails with gradients and, on the same values, passes without them is wrong in its backward alone. One
// that fails both ways is what the plan should have seen.
void Measure::set_apart(const Case& c, Wrong& wrong) {
  const Case forward = without_gradients(c);
  Expectation expectation(driver_, forward, 1);
  const bool passes = !find_property(forward.property)->check(expectation, wrong.form.subject()).finding;
  wrong.kill.killed = wrong.backward_alone = passes;
}

std::vector<Measure::Wrong*> Measure::living(const std::function<bool(const Wrong&)>& which) {
  std::vector<Wrong*> forms;
  for (Wrong& wrong : wrong_)
    if (!wrong.kill.killed && which(wrong)) forms.push_back(&wrong);
  return forms;
}

std::vector<Kill> Measure::kills() const {
  std::vector<Kill> list;
  for (const Wrong& wrong : wrong_)
    if (!wrong.backward_alone) list.push_back(wrong.kill);
  return list;
}

std::vector<std::string> Measure::backward_alone() const {
  std::vector<std::string> names;
  for (const Wrong& wrong : wrong_)
    if (wrong.backward_alone) names.push_back(wrong.kill.form);
  return names;
}

}  // namespace fractus
