// Property 2, exact: inputs on lattices where no correct order of operations rounds, so bit equality is demanded. A
// free lattice fills the significand of S and z; a balanced one makes every den a power of two, and y and the adjoint
// exact; a wide one fills the significand of one tensor at a time.
#include <fmt/format.h>

#include <algorithm>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "exact";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    const std::vector<Dims> shapes = driver.wide_shapes(settings.block);
    for (const std::string& fill : driver.wide_fills)
      for (int k = 0; k < 4; ++k) {
        Case c = base_case(driver, self, dtype, shapes[(3 * turn++) % shapes.size()], fill);
        c.cotangents = output_names(driver);
        if (k == 3) c.dims = driver.live_slice;
        cases.push_back(c);
      }
    for (const Dims& dims : driver.shapes(settings.block))
      cases.push_back(base_case(driver, self, dtype, dims, driver.exact_fill));
    for (const Dims& dims : driver.exact_backward_shapes(settings.block)) {
      Case c = base_case(driver, self, dtype, dims, driver.exact_backward_fill);
      c.cotangents = output_names(driver);
      cases.push_back(c);
    }
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  const std::string forward_fill = driver.exact_fill;
  std::vector<std::string> fills{forward_fill, driver.exact_backward_fill};
  fills.insert(fills.end(), driver.wide_fills.begin(), driver.wide_fills.end());
  return rc::gen::map(random_case(driver, settings, self, fills, Backward::always), [forward_fill](Case c) {
    if (c.fill == forward_fill) {
      c.cotangents.clear();
      c.frozen.clear();
    }
    return c;
  });
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const Answer answer = subject.call(call_of(expectation, subject));
  if (auto finding = trouble(answer)) return {.finding = std::move(finding)};
  Outcome outcome = compare(expectation, answer);
  outcome.histogram.clear();
  outcome.worst_ratio.clear();  // these inputs hardly round: their ratios say nothing of ordinary ones
  demand_exact(expectation, answer, outcome);
  if (!outcome.finding) outcome.escape = expectation.problem().escape;
  return outcome;
}

}  // namespace

Property exact_property() {
  return {.name = self,
          .proves = "bit equality on certified lattices, where every correct order of operations is exact",
          .applies = [](const Driver& driver) { return !driver.exact_fill.empty(); },
          .plan = plan,
          .random = random,
          .check = check};
}

}  // namespace fractus
