// Property 4, gradients: every differentiable input, non-uniform cotangents on every output, singly and together, and
// with some inputs frozen; the training run's own shape in one piece.
#include <algorithm>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/random.h"

namespace fractus {
namespace {

constexpr const char* self = "gradients";
// Inputs that are leaves of the graph, and inputs that are results themselves, as in every model; or one of them is
// rows of another one, whose gradient then accumulates.
const std::vector<std::string> variants{"leaves", "computed"};
const std::string tied = "tied";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  const std::vector<std::string> outputs = output_names(driver);
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    const auto add = [&](const Dims& dims, const std::vector<std::string>& cotangents,
                         const std::string& fill) -> Case& {
      Case c = base_case(driver, self, dtype, dims, fill);
      c.cotangents = cotangents;
      cases.push_back(c);
      return cases.back();
    };
    const auto next_fill = [&] { return driver.smooth_fills[turn++ % driver.smooth_fills.size()]; };
    // Every set of cotangents, and of frozen inputs one, all but one and those that are optional, at the run's own
    // widths.
    const Dims slice = driver.live_slice;
    for (int mask = 1; mask < 1 << outputs.size(); ++mask) {
      std::vector<std::string> some;
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if ((mask >> i) & 1) some.push_back(outputs[i]);
      add(slice, some, next_fill());
    }
    // Of a kernel with many parameters each dtype has half of either, the other dtype the other half.
    const std::vector<TensorSpec> inputs = differentiable_inputs(driver);
    const auto is_its_turn = [&](std::size_t i) { return turn_of(driver, settings, dtype, i); };
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Dims& dims = shape_with(inputs[i], slice, shapes);
      if (is_its_turn(i)) add(dims, outputs, next_fill()).frozen = {inputs[i].name};
      if (!is_its_turn(i + 1)) continue;
      Case& alone = add(dims, outputs, next_fill());
      for (const TensorSpec& other : inputs)
        if (other.name != inputs[i].name) alone.frozen.push_back(other.name);
    }
    add(slice, outputs, next_fill()).frozen = optional_inputs(driver);
    Case& optional_alone = add(slice, outputs, next_fill());
    for (const TensorSpec& input : inputs)
      if (!contains(optional_inputs(driver), input.name)) optional_alone.frozen.push_back(input.name);
    for (const std::string& output : outputs)
      for (int k = 0; k < 4; ++k) add(shapes[(turn + 3) % shapes.size()], {output}, next_fill());
    for (const Dims& dims : shapes) add(dims, outputs, next_fill());
    for (const std::string& fill : driver.smooth_fills) add(shapes[turn++ % shapes.size()], outputs, fill);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (is_its_turn(i + 1))
        add(shape_with(inputs[i], shapes[turn % shapes.size()], shapes), outputs, next_fill()).frozen = {
            inputs[i].name};
    for (const std::string& fill : driver.tied_fills) add(shapes[++turn % shapes.size()], outputs, fill).variant = tied;
    if (!settings.live) continue;
    for (const Dims& dims : driver.corners) add(dims, outputs, next_fill());
    // float64's base has no vector instructions: it has a few of the groups.
    Case& strided = add(driver.live_groups(dtype == DType::float32 ? 16 : 2), outputs, driver.smooth_fills.front());
    for (const TensorSpec& spec : driver.contract->inputs) strided.layouts[spec.name] = Layout::transposed;
    // As the training run calls it: inputs that are results, the first output's cotangent alone, a state that wants no
    // gradient.
    Case& training = add(dtype == DType::float32 ? driver.live : driver.live_float64, {outputs.front()},
                         driver.smooth_fills.front());
    training.frozen = optional_inputs(driver);
    training.variant = "computed";
  }
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (cases[i].variant.empty()) cases[i].variant = variants[i % 2];
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  return with_variant(random_case(driver, settings, self, driver.smooth_fills, Backward::always), variants);
}

Outcome check_tied(Expectation& expectation, const Subject& subject) {
  const Driver& driver = expectation.driver();
  const Case& c = expectation.of();
  if (driver.tied.first.empty()) throw std::invalid_argument("variant: the kernel has no inputs to tie");
  const std::vector<TensorSpec>& inputs = driver.contract->inputs;
  Tied pair{.input = position(inputs, driver.tied.first), .from = position(inputs, driver.tied.second)};
  Problem problem = expectation.problem();
  Array &rows = *problem.inputs[pair.input], &whole = *problem.inputs[pair.from];
  Random random(c.seed);
  for (std::int64_t r = 0; r < rows.shape.front(); ++r) pair.rows.push_back(random.integer(0, whole.shape.front() - 1));
  const std::size_t width = static_cast<std::size_t>(whole.shape.back());
  for (std::size_t r = 0; r < pair.rows.size(); ++r)
    std::copy_n(whole.values.begin() + pair.rows[r] * whole.shape.back(), width,
                rows.values.begin() + static_cast<std::ptrdiff_t>(r * width));
  Expectation its(driver, c, problem, expectation.threads());
  its.tie(pair);
  Call call = call_of(its, subject);
  call.gradients[pair.input] = false;
  call.tied = pair;
  return call_and_compare(its, subject, call);
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const std::string& variant = expectation.of().variant;
  if (variant == tied) return check_tied(expectation, subject);
  if (!contains(variants, variant)) throw std::invalid_argument("variant: '" + variant + "' is unknown to gradients");
  Call call = call_of(expectation, subject);
  call.computed_inputs = variant == "computed";
  return call_and_compare(expectation, subject, call);
}

}  // namespace

Property gradients_property() {
  return {.name = self,
          .proves = "every gradient within its certified bound, cotangents on each output singly and together",
          .applies = [](const Driver& driver) { return !output_names(driver).empty(); },
          .plan = plan,
          .random = random,
          .check = check,
          .compared_with_known_good = true};
}

}  // namespace fractus
