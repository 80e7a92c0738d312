// Property 7, repeat: the same call again, after other calls, with other threads, with other groups beside it, with and
// without a graph, and with the forwards of other calls between its forward and its backward. What the form declares
// bit-equal is held to the bit; everything is held to the bound.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <future>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/slices.h"

namespace fractus {
namespace {

constexpr const char* self = "repeat";
// layers, microbatches: several calls run forward before the first runs backward, last first as the layers of a model
// do or in order as microbatches may. A kernel that keeps what its backward needs, or its result, in one place for all
// calls is right in each call alone.
const std::vector<std::string> variants{"rerun",  "after-others", "threads", "neighbours", "graph",
                                        "layers", "microbatches", "no-grad", "elsewhere"};

std::vector<std::string> variants_of(const Driver& driver) {
  std::vector<std::string> those = variants;
  if (driver.batch_symbol.empty()) std::erase(those, "neighbours");
  if (!driver.law) std::erase(those, "elsewhere");  // what is no draw is held to its bound, wherever it runs
  return those;
}

bool forward_only(const std::string& variant) { return variant == "graph" || variant == "no-grad"; }

// Two of everything: small, and no extent that a form might treat apart.
Dims shortest(const Driver& driver) {
  Dims dims;
  for (const std::string& symbol : driver.contract->dim_symbols) dims[symbol] = 2;
  return dims;
}

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    for (const std::string& variant : variants_of(driver))
      for (int k = 0; k < 4; ++k) {
        Case c = base_case(driver, self, dtype, shapes[(5 * turn) % shapes.size()], driver.smooth_fills[turn % 2]);
        ++turn;
        c.variant = variant;
        const bool together = variant == "layers" || variant == "microbatches";
        if ((k % 2 == 0 || together) && !forward_only(variant)) c.cotangents = output_names(driver);
        if (together && k == 0) c.dims = shortest(driver);  // as many calls as a model has layers
        if (together && k == 1) c.cotangents.clear();
        if (k == 3) c.dims = driver.live_slice;
        cases.push_back(c);
      }
    // A workspace that only grows may decide the order of a sum, which shows where there are many terms.
    if (settings.live) {
      Case c = base_case(driver, self, dtype, driver.corners.front(), driver.smooth_fills.front());
      c.variant = "after-others";
      c.cotangents = output_names(driver);
      cases.push_back(c);
    }
    // Without gradients too, where a buffer for a sequence or for a token is tempting; and as the training run has
    // them. A buffer is no matter of dtype, so one is enough.
    if (settings.live && dtype == settings.dtypes.front()) {
      Case several = base_case(driver, self, dtype, driver.live_groups(1), driver.smooth_fills.front());
      several.variant = "layers";
      cases.push_back(several);
      cases.push_back(several);
      cases.back().cotangents = output_names(driver);
      for (const TensorSpec& spec : driver.contract->inputs) cases.back().layouts[spec.name] = Layout::column_major;
      several.dims[driver.growing_symbol] = 1;
      cases.push_back(several);
    }
    Case wide = base_case(driver, self, dtype, driver.for_threads, driver.smooth_fills.front());
    wide.variant = "threads";
    wide.cotangents = output_names(driver);
    cases.push_back(wide);
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  const auto any =
      with_variant(random_case(driver, settings, self, driver.smooth_fills, Backward::always), variants_of(driver));
  return rc::gen::map(any, [](Case c) {
    if (forward_only(c.variant)) c.cotangents.clear(), c.frozen.clear();
    return c;
  });
}

// Another problem of the case's kind: other values, and perhaps another extent.
Outcome judged_other(Expectation& expectation, const Subject& subject, std::int64_t longer) {
  Case other = expectation.of();
  other.seed += 1;
  other.dims[expectation.driver().growing_symbol] += longer;
  Expectation its(expectation.driver(), other, expectation.threads());
  return call_and_compare(its, subject, call_of(its, subject));
}

// In a process of its own, before and after a larger call than any it has seen: what grows with the largest call so far
// may decide the order of a sum.
std::optional<Finding> differs_after_larger(Expectation& expectation, const Subject& subject, const Call& call) {
  Case larger = expectation.of();
  larger.dims[expectation.driver().growing_symbol] += 1;
  const Expectation its(expectation.driver(), larger, expectation.threads());
  const std::vector<Answer> answers = subject.call_fresh({call, call_of(its, subject), call});
  for (const Answer& answer : answers)
    if (auto finding = trouble(answer)) return finding;
  return differ(answers.front(), answers.back(), "the same call before and after a larger one");
}

// The call between others of its kind, all forwards before any backward: each within its own bound, and the first to
// the bit what it is alone. One of the others is longer.
Outcome judged_together(Expectation& expectation, const Subject& subject, const Answer& alone, bool last_first) {
  constexpr std::size_t layers = 20, few = 4;  // the training run's model has 16
  const Case& c = expectation.of();
  std::int64_t elements = 1;
  for (const auto& [symbol, extent] : c.dims) elements *= extent;
  std::deque<Expectation> all;
  std::vector<Call> calls;
  const bool as_many = elements <= 16 || (last_first && c.dims == expectation.driver().live_slice);
  for (std::size_t k = 0; k < (as_many ? layers : few); ++k) {
    Case other = c;
    other.seed += k;
    if (k == 2) other.dims[expectation.driver().growing_symbol] += 1;
    all.emplace_back(expectation.driver(), other, expectation.threads());
    calls.push_back(call_of(all.back(), subject));
  }
  const auto beside = std::async(std::launch::async, [&all] {
    for (Expectation& its : all) {
      const auto one = its.begin();
    }
  });
  const std::vector<Answer> answers = subject.call_together(calls, last_first);
  Outcome outcome;
  for (std::size_t k = 0; k < all.size() && !outcome.finding; ++k) {
    if (auto finding = trouble(answers[k])) return {.finding = std::move(finding)};
    merge(outcome, compare(all[k], answers[k]));
  }
  if (!outcome.finding && subject.bit_equal_reruns)
    outcome.finding = differ(alone, answers.front(), "alone and between other calls");
  if (outcome.finding)
    outcome.finding->text = fmt::format("with {} calls under way: {}", all.size(), outcome.finding->text);
  return outcome;
}

// One group of the batch alone: within its bound, and to the bit as in the batch where that is declared. What all
// groups share is as it was, and its gradient is another.
Outcome judged_alone(Expectation& expectation, const Subject& subject, const Answer& batch, std::int64_t g) {
  const Driver& driver = expectation.driver();
  Case c = expectation.of();
  c.dims[driver.batch_symbol] = 1;
  const auto of_groups = [&](const TensorSpec& spec) {
    return !spec.dims.empty() && spec.dims.front() == driver.batch_symbol;
  };
  const auto alone = [&](std::vector<std::optional<Array>> list, const std::vector<TensorSpec>& specs) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i] && of_groups(specs[i])) list[i] = slice(*list[i], 0, g, 1);
    return list;
  };
  Problem problem = expectation.problem();
  problem.inputs = alone(problem.inputs, driver.contract->inputs);
  problem.cotangents = alone(problem.cotangents, driver.contract->outputs);
  Expectation its(driver, c, problem, expectation.threads());
  Answer answer = subject.call(call_of(its, subject));
  if (auto finding = trouble(answer)) return {.finding = std::move(finding)};
  Outcome outcome = compare(its, answer);
  if (!outcome.finding && subject.bit_equal_neighbours) {
    Answer part = batch;
    for (std::size_t i = 0; i < part.outputs.size(); ++i)
      part.outputs[i] = of_groups(driver.contract->outputs[i]) ? slice(part.outputs[i], 0, g, 1) : answer.outputs[i];
    part.gradients = alone(part.gradients, driver.contract->inputs);
    for (std::size_t i = 0; i < part.gradients.size(); ++i)
      if (!of_groups(driver.contract->inputs[i])) part.gradients[i].reset(), answer.gradients[i].reset();
    outcome.finding = differ(part, answer, "a group in its batch and alone");
  }
  return outcome;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const std::string& variant = expectation.of().variant;
  const Call call = call_of(expectation, subject);
  const auto beside = expectation.begin();
  const Answer first = subject.call(call);
  if (auto finding = trouble(first)) return {.finding = std::move(finding)};
  Outcome outcome = compare(expectation, first);

  const auto again = [&](const Call& same, bool bit_equal, const std::string& what) {
    const Answer second = subject.call(same);
    if (auto finding = trouble(second)) return merge(outcome, {.finding = std::move(finding)});
    merge(outcome, compare(expectation, second));
    if (!outcome.finding && bit_equal) outcome.finding = differ(first, second, what);
  };

  if (variant == "elsewhere") {
    // A run that is resumed, or another rank, loads the form anew and has the same seed.
    const Answer there = subject.call_elsewhere(call);
    if (auto finding = trouble(there)) return {.finding = std::move(finding)};
    merge(outcome, compare(expectation, there));
    if (!outcome.finding && subject.bit_equal_reruns)
      outcome.finding = differ(first, there, "in two processes that have each loaded it");
  } else if (variant == "rerun") {
    again(call, subject.bit_equal_reruns, "the same call twice");
  } else if (variant == "after-others") {
    merge(outcome, judged_other(expectation, subject, 0));
    merge(outcome, judged_other(expectation, subject, 1));
    again(call, subject.bit_equal_reruns, "the same call before and after others");
    if (!outcome.finding && subject.bit_equal_reruns)
      outcome.finding = differs_after_larger(expectation, subject, call);
  } else if (variant == "threads") {
    for (int threads : {2, 5}) {
      Call wider = call;
      wider.threads = threads;
      again(wider, subject.bit_equal_threads, fmt::format("one thread and {}", threads));
    }
  } else if (variant == "layers" || variant == "microbatches") {
    merge(outcome, judged_together(expectation, subject, first, variant == "layers"));
  } else if (forward_only(variant)) {
    Call recorded = call;
    (variant == "graph" ? recorded.record_graph : recorded.tracked_inputs) = true;
    for (std::size_t i = 0; i < recorded.gradients.size(); ++i) recorded.gradients[i] = recorded.inputs[i].has_value();
    // One seed, one draw: a graph is no reason for another.
    const bool is_draw = static_cast<bool>(expectation.driver().law);
    again(recorded, is_draw && subject.bit_equal_reruns,
          variant == "graph" ? "without a graph and with one" : "inputs that track gradients and grad mode off");
  } else if (variant == "neighbours") {
    if (expectation.driver().batch_symbol.empty())
      throw std::invalid_argument("variant: the kernel has no batch, so there are no neighbours in it");
    const std::int64_t groups = expectation.of().dims.at(expectation.driver().batch_symbol);
    for (std::int64_t g : {std::int64_t{0}, groups - 1})
      if (g >= 0) merge(outcome, judged_alone(expectation, subject, first, g));
  } else {
    throw std::invalid_argument("variant: '" + variant + "' is unknown to repeat");
  }
  return outcome;
}

}  // namespace

Property repeat_property() {
  return {.name = self,
          .proves =
              "the same result again: after and between other calls, with other threads, beside other groups, with and "
              "without "
              "a graph",
          .applies = [](const Driver&) { return true; },
          .plan = plan,
          .random = random,
          .check = check};
}

}  // namespace fractus
