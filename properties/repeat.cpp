// Property 7, repeat: the same call again, after other calls, with other threads, with other groups beside it, with and
// without a graph. What the form declares bit-equal is held to the bit; everything is held to the bound.
#include <algorithm>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/slices.h"

namespace fractus {
namespace {

constexpr const char* self = "repeat";
const std::vector<std::string> variants{"rerun", "after-others", "threads", "neighbours", "graph"};

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    for (const std::string& variant : variants)
      for (int k = 0; k < 4; ++k) {
        Case c = base_case(driver, self, dtype, shapes[(5 * turn) % shapes.size()], driver.smooth_fills[turn % 2]);
        ++turn;
        c.variant = variant;
        if (k % 2 == 0 && variant != "graph") c.cotangents = output_names(driver);
        cases.push_back(c);
      }
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  const auto drawn = rc::gen::pair(random_case(driver, settings, self, driver.smooth_fills, Backward::always),
                                   rc::gen::elementOf(variants));
  return rc::gen::map(drawn, [](auto draw) {
    draw.first.variant = draw.second;
    if (draw.second == "graph") draw.first.cotangents.clear(), draw.first.frozen.clear();
    return draw.first;
  });
}

// Another problem of the case's kind: other values, and perhaps another extent.
Outcome judged_other(Expectation& expectation, const Subject& subject, std::int64_t longer) {
  Case other = expectation.of();
  other.seed += 1;
  const std::string& symbol = expectation.driver().sequence_symbol;
  if (!symbol.empty()) other.dims[symbol] += longer;
  Expectation its(expectation.driver(), other, expectation.threads());
  return call_and_compare(its, subject, call_of(its, subject));
}

// One group of the batch alone: within its bound, and to the bit as in the batch where that is declared.
Outcome judged_alone(Expectation& expectation, const Subject& subject, const Answer& batch, std::int64_t g) {
  Case c = expectation.of();
  const std::string& symbol = expectation.driver().contract->dim_symbols.front();
  c.dims[symbol] = 1;
  const auto alone = [&](auto list) {
    for (auto& array : list)
      if (array) array = slice(*array, 0, g, 1);
    return list;
  };
  Problem problem = expectation.problem();
  problem.inputs = alone(problem.inputs);
  problem.cotangents = alone(problem.cotangents);
  Expectation its(expectation.driver(), c, problem, expectation.threads());
  const Answer answer = subject.call(call_of(its, subject));
  if (auto finding = trouble(answer)) return {.finding = std::move(finding)};
  Outcome outcome = compare(its, answer);
  if (!outcome.finding && subject.bit_equal_neighbours) {
    Answer part = batch;
    for (Array& output : part.outputs) output = slice(output, 0, g, 1);
    part.gradients = alone(part.gradients);
    outcome.finding = differ(part, answer, "a group in its batch and alone");
  }
  return outcome;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const std::string& variant = expectation.of().variant;
  const Call call = call_of(expectation, subject);
  const Answer first = subject.call(call);
  if (auto finding = trouble(first)) return {.finding = std::move(finding)};
  Outcome outcome = compare(expectation, first);

  const auto again = [&](const Call& same, bool bit_equal, const std::string& what) {
    const Answer second = subject.call(same);
    if (auto finding = trouble(second)) return merge(outcome, {.finding = std::move(finding)});
    merge(outcome, compare(expectation, second));
    if (!outcome.finding && bit_equal) outcome.finding = differ(first, second, what);
  };

  if (variant == "rerun") {
    again(call, subject.bit_equal_reruns, "the same call twice");
  } else if (variant == "after-others") {
    merge(outcome, judged_other(expectation, subject, 0));
    merge(outcome, judged_other(expectation, subject, 1));
    again(call, subject.bit_equal_reruns, "the same call before and after others");
  } else if (variant == "threads") {
    Call wider = call;
    wider.threads = call.threads == 1 ? 2 : 1;
    again(wider, subject.bit_equal_threads, "one thread and two");
  } else if (variant == "graph") {
    Call recorded = call;
    recorded.record_graph = true;
    for (std::size_t i = 0; i < recorded.gradients.size(); ++i) recorded.gradients[i] = recorded.inputs[i].has_value();
    again(recorded, false, "without a graph and with one");
  } else if (variant == "neighbours") {
    const std::int64_t groups = expectation.of().dims.at(expectation.driver().contract->dim_symbols.front());
    for (std::int64_t g : {std::int64_t{0}, groups - 1})
      if (g >= 0) merge(outcome, judged_alone(expectation, subject, first, g));
  } else {
    throw std::invalid_argument("variant: '" + variant + "' is unknown to repeat");
  }
  return outcome;
}

}  // namespace

Property repeat_property() {
  return {
      .name = self,
      .proves =
          "the same result again: after other calls, with other threads, beside other groups, with and without a graph",
      .applies = [](const Driver&) { return true; },
      .plan = plan,
      .random = random,
      .check = check};
}

}  // namespace fractus
