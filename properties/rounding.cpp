// Property 3, rounding: outputs within the certified bound, element by element, over ordinary and adversarial input, in
// every dtype that the verdict covers. float64's bound is 2^29 times smaller, so a term that float32 hides shows there.
#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "rounding";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    for (const std::string& fill : driver.smooth_fills)
      cases.push_back(base_case(driver, self, dtype, driver.live_slice, fill));
    for (const std::string& fill : driver.smooth_fills)
      if (settings.live && dtype == settings.dtypes.front())
        cases.push_back(base_case(driver, self, dtype, driver.live_groups(1), fill));
    for (const std::string& fill : driver.smooth_fills)
      for (int k = 0; k < 2; ++k) cases.push_back(base_case(driver, self, dtype, shapes[turn++ % shapes.size()], fill));
    for (const Dims& dims : shapes)
      cases.push_back(base_case(driver, self, dtype, dims, driver.smooth_fills[turn++ % driver.smooth_fills.size()]));
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  return random_case(driver, settings, self, driver.smooth_fills, Backward::never);
}

Outcome check(Expectation& expectation, const Subject& subject) {
  return call_and_compare(expectation, subject, call_of(expectation, subject));
}

}  // namespace

Property rounding_property() {
  return {.name = self,
          .proves = "every output element within the certified rounding bound, adversarial input included",
          .applies = [](const Driver& driver) { return static_cast<bool>(driver.expected); },
          .plan = plan,
          .random = random,
          .check = check,
          .compared_with_known_good = true};
}

}  // namespace fractus
