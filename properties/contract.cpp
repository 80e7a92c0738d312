// Property 1, contract: any strides, any optional inputs, empty sequences; inputs untouched, outputs of their own,
// every element written, guard bands whole, no NaN that the definition lacks, backward twice with one result.
#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "contract";

// The tensors of the case that a layout can be given to.
std::vector<std::string> laid_out(const Driver& driver, const Case& c) {
  std::vector<std::string> tensors;
  for (const TensorSpec& spec : driver.contract->inputs) tensors.push_back(spec.name);
  for (const std::string& output : c.cotangents) tensors.push_back("d" + output);
  return tensors;
}

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0, turn_of_padded = 0;
    // Against the presence of each optional input, with a backward and without.
    const auto lay_out = [&](Layout layout, std::size_t& its_turn) {
      for (const auto& absent : {std::vector<std::string>{}, optional_inputs(driver)})
        for (bool backward : {true, false}) {
          const std::size_t at = its_turn++;
          // Each dtype has each layout with a backward and without, and with what is optional and without.
          const std::size_t turn_at = at / 4 + (absent.empty() ? 1 : 0) + (backward ? 1 : 0);
          if (!turn_of(driver, settings, dtype, turn_at)) continue;
          Case c = base_case(driver, self, dtype, shapes[at % shapes.size()], driver.smooth_fills.front());
          if (backward) c.cotangents = output_names(driver);
          if (layout != Layout::contiguous)
            for (const std::string& tensor : laid_out(driver, c)) c.layouts[tensor] = layout;
          c.absent = absent;
          cases.push_back(c);
          if (backward && absent.empty()) {
            c.dims = driver.live_slice;
            cases.push_back(c);
          }
        }
    };
    // The shortest call of all, where a shortcut tempts: one step, without what is optional.
    if (!driver.growing_symbol.empty())
      for (const auto& absent : {std::vector<std::string>{}, optional_inputs(driver)})
        for (bool backward : {true, false}) {
          Case c = base_case(driver, self, dtype, shapes.back(), driver.smooth_fills.at(1));
          c.dims[driver.growing_symbol] = 1;
          c.absent = absent;
          if (backward) c.cotangents = output_names(driver);
          cases.push_back(c);
        }
    // Nothing to do is a call like any other: each extent that a sequence or a batch has, at 0.
    for (const std::string& symbol : driver.may_be_empty) {
      std::vector<std::vector<std::string>> absences{{}, optional_inputs(driver)};
      for (const std::string& only : optional_inputs(driver)) absences.push_back({only});
      for (const auto& absent : absences)
        for (bool backward : {false, true}) {
          Case c = base_case(driver, self, dtype, shapes.front(), driver.smooth_fills.front());
          c.dims[symbol] = 0;
          c.absent = absent;
          if (backward)
            c.cotangents = output_names(driver);
          else
            for (const std::string& tensor : laid_out(driver, c)) c.layouts[tensor] = Layout::column_major;
          cases.push_back(c);
        }
    }
    for (Layout layout : all_layouts)
      if (layout != Layout::padded) lay_out(layout, turn);
    for (const std::string& only : optional_inputs(driver)) {
      Case c = base_case(driver, self, dtype, shapes[turn++ % shapes.size()], driver.smooth_fills.front());
      c.absent = {only};
      c.cotangents = output_names(driver);
      cases.push_back(c);
      if (!settings.live) continue;
      c.dims = driver.live_groups(2);
      // Neighbours differ: a path that asks one tensor for its strides may read the next by them.
      bool first = turn % 2 == 0;
      for (const std::string& tensor : laid_out(driver, c)) {
        c.layouts[tensor] = first ? Layout::transposed : Layout::column_major;
        first = !first;
      }
      cases.push_back(c);
    }
    lay_out(Layout::padded, turn_of_padded);  // last, so that the cases before keep their shapes and seeds
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  // A layout for each tensor by itself: a kernel that asks one of them for its strides may take all others to be alike.
  const std::size_t tensors = driver.contract->inputs.size() + driver.contract->outputs.size();
  const auto layouts = rc::gen::container<std::vector<Layout>>(
      tensors, rc::gen::elementOf(std::vector<Layout>(std::begin(all_layouts), std::end(all_layouts))));
  return rc::gen::map(
      rc::gen::pair(random_case(driver, settings, self, driver.smooth_fills, Backward::always), layouts),
      [&driver](auto draw) {
        Case c = draw.first;
        std::size_t i = 0;
        for (const std::string& tensor : laid_out(driver, c))
          if (const Layout layout = draw.second[i++]; layout != Layout::contiguous) c.layouts[tensor] = layout;
        return c;
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
