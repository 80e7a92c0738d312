// Property 1, contract: any strides, any optional inputs, empty sequences; inputs untouched, outputs of their own,
// every element written, guard bands whole, no NaN that the definition lacks, backward twice with one result.
#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "contract";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  for (DType dtype : settings.dtypes) {
    // Layouts against the presence of each optional input, with a backward and without.
    std::size_t turn = 0;
    for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::expanded})
      for (const auto& absent : {std::vector<std::string>{}, optional_inputs(driver)})
        for (bool backward : {true, false}) {
          Case c = base_case(driver, self, dtype, shapes[turn++ % shapes.size()], "feature");
          c.layout = layout;
          c.absent = absent;
          if (backward) c.cotangents = output_names(driver);
          cases.push_back(c);
        }
    // The shortest call of all, where a shortcut tempts: one step of the sequence, without what is optional.
    if (!driver.sequence_symbol.empty())
      for (const auto& absent : {std::vector<std::string>{}, optional_inputs(driver)})
        for (bool backward : {true, false}) {
          Case c = base_case(driver, self, dtype, shapes.back(), "signed");
          c.dims[driver.sequence_symbol] = 1;
          c.absent = absent;
          if (backward) c.cotangents = output_names(driver);
          cases.push_back(c);
        }
    for (const std::string& only : optional_inputs(driver)) {
      Case c = base_case(driver, self, dtype, shapes[turn++ % shapes.size()], "feature");
      c.absent = {only};
      c.cotangents = output_names(driver);
      cases.push_back(c);
    }
    // Nothing to do is a call like any other: each extent that a sequence or a batch has, at 0.
    for (const std::string& symbol : driver.contract->dim_symbols) {
      if (symbol != driver.sequence_symbol && symbol != driver.contract->dim_symbols.front()) continue;
      for (const auto& absent : {std::vector<std::string>{}, optional_inputs(driver)})
        for (bool backward : {false, true}) {
          Case c = base_case(driver, self, dtype, shapes.front(), "feature");
          c.dims[symbol] = 0;
          c.absent = absent;
          if (backward) c.cotangents = output_names(driver);
          cases.push_back(c);
        }
    }
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  const auto layout = rc::gen::element(Layout::transposed, Layout::sliced, Layout::expanded);
  return rc::gen::map(rc::gen::pair(random_case(driver, settings, self, driver.smooth_fills, Backward::always), layout),
                      [](auto draw) {
                        draw.first.layout = draw.second;
                        return draw.first;
                      });
}

Outcome check(Expectation& expectation, const Subject& subject) {
  Call call = call_of(expectation, subject);
  call.backward_twice = !expectation.of().cotangents.empty();
  return call_and_compare(expectation, subject, call);
}

}  // namespace

Property contract_property() {
  return {.name = self,
          .proves =
              "any strides, any optional inputs, empty calls; inputs untouched, outputs of their own and fully "
              "written; backward twice",
          .applies = [](const Driver&) { return true; },
          .plan = plan,
          .random = random,
          .check = check};
}

}  // namespace fractus
