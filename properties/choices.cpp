// Property 6, choices: a decision under rounding (here the cut of a small denominator) is free where the certified
// interval holds both answers, and forced everywhere else. What follows is judged given the form's own choice, and
// gradients, for which a form may choose anew, by either.
#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "choices";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  std::size_t turn = 0;
  for (DType dtype : settings.dtypes) {
    for (const Dims& dims : driver.shapes(settings.block)) {
      Case c = base_case(driver, self, dtype, dims, driver.choice_fill);
      if (turn++ % 2 == 0) c.cotangents = output_names(driver);
      cases.push_back(c);
    }
    for (bool backward : {false, true}) {
      Case c = base_case(driver, self, dtype, driver.live_slice, driver.choice_fill);
      if (backward) c.cotangents = output_names(driver);
      cases.push_back(c);
      if (!settings.live) continue;
      c.dims = driver.live_groups(1);
      cases.push_back(c);
    }
    ++turn;  // a shape that had a backward in one dtype has none in the other
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  return random_case(driver, settings, self, {driver.choice_fill}, Backward::always);
}

Outcome check(Expectation& expectation, const Subject& subject) {
  Outcome outcome = call_and_compare(expectation, subject, call_of(expectation, subject));
  outcome.histogram.clear();
  outcome.worst_ratio.clear();  // most of these rows are decided, and their ratios follow the few that are not
  return outcome;
}

}  // namespace

Property choices_property() {
  return {.name = self,
          .proves =
              "both sides of a cut as the contract says, one unit in the last place to either side, either branch "
              "where it is in doubt",
          .applies = [](const Driver& driver) { return !driver.choice_fill.empty(); },
          .plan = plan,
          .random = random,
          .check = check};
}

}  // namespace fractus
