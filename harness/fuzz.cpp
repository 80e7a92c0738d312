#include "harness/fuzz.h"

#include <fmt/format.h>

#include "harness/attached.h"
#include "harness/clock.h"
#include "harness/explain.h"

namespace fractus {

FuzzResult fuzz(const Workshop& workshop, const Driver& driver, const Plan& plan, const FuzzSettings& settings) {
  const auto start = Clock::now();

  struct Source {
    const Property* property;
    rc::Gen<Case> cases;
  };
  std::vector<Source> sources;
  for (const std::string& name : plan.properties)
    if (const Property* property = find_property(name); property != nullptr && property->random)
      sources.push_back({property, property->random(driver, plan.generation)});
  if (sources.empty()) throw std::invalid_argument("none of the chosen properties draws random cases");

  FuzzResult result;
  Attached candidate(workshop, candidate_of(workshop, plan), plan.settings);
  rc::Random random(plan.generation.seed);
  while (seconds_since(start) < settings.budget.count() &&
         (settings.most_cases == 0 || result.cases < settings.most_cases)) {
    const Source& source = sources[static_cast<std::size_t>(result.cases) % sources.size()];
    const Case c = source.cases(random.split(), rc::kNominalSize).value();
    Expectation expectation(driver, c, 2);
    const Outcome outcome = source.property->check(expectation, candidate.subject());
    ++result.cases;
    ++result.by_property[source.property->name];
    count(result.by_class, driver, plan.generation, c, outcome);
    result.elements += outcome.elements;
    result.undecidable += outcome.undecidable;
    for (const auto& [tensor, ratio] : outcome.worst_ratio) {
      double& worst = result.worst_ratio[fmt::format("{} {}", name(c.dtype), tensor)];
      worst = std::max(worst, ratio);
    }
    if (settings.progress) settings.progress(result.cases, seconds_since(start));
    const bool waived = outcome.finding && contains(settings.waived, outcome.finding->waiver);
    if (outcome.finding && !waived) {
      PropertyResult failure;
      failure.name = source.property->name;
      failure.proves = source.property->proves;
      failure.finding = outcome.finding;
      failure.verdict = outcome.finding->broken ? "FAILED" : "DIFFERENT";
      explain(driver, *source.property, c, candidate, settings.fixtures, failure);
      result.failure = std::move(failure);
      break;
    }
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace fractus
