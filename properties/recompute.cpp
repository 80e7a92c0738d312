// Property 7b, recompute: a form that runs another one again in its backward, instead of keeping what that needs, gives
// that form's results to the last bit, whatever runs between, and keeps less.
//
// Bits, not bounds: the same kernels on the same machine, run a second time on the same numbers, round the same way, so
// any other bit means that the second run saw other numbers (a state that has moved on, a buffer that was reused, a
// choice that went the other way).
#include <fmt/format.h>

#include <stdexcept>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "recompute";
// between: other forwards run between its forward and its backward, and the same one twice.
const std::vector<std::string> variants{"bits", "threads", "between"};
constexpr const char* saved = "saved";
// Below this a form keeps too little for what comes with each recomputation, such as the random-number state, 5 KB.
constexpr std::int64_t worth_saving = 32 << 10;

std::vector<std::string> fills_of(const Driver& driver) {
  std::vector<std::string> fills = driver.smooth_fills;
  if (!driver.choice_fill.empty()) fills.push_back(driver.choice_fill);  // a choice must not be made anew
  return fills;
}

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  const std::vector<std::string> outputs = output_names(driver);
  std::size_t turn = 0;
  const auto add = [&](DType dtype, const std::string& variant, const std::string& fill, const Dims& dims) -> Case& {
    Case c = base_case(driver, self, dtype, dims, fill);
    c.variant = variant;
    c.cotangents = outputs;
    cases.push_back(c);
    return cases.back();
  };
  for (DType dtype : settings.dtypes) {
    std::size_t its_turn = 0;
    for (const std::string& variant : variants)
      for (const std::string& fill : fills_of(driver)) {
        const Dims& dims = shapes[7 * turn++ % shapes.size()];
        if (turn_of(driver, settings, dtype, its_turn++)) add(dtype, variant, fill, dims);
      }
    for (const std::string& output : outputs)
      add(dtype, "bits", driver.smooth_fills.front(), driver.live_slice).cotangents = {output};
    // A recomputation that hangs on one input's gradient is lost where that one wants none.
    const std::vector<TensorSpec> inputs = differentiable_inputs(driver);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (turn_of(driver, settings, dtype, i))
        add(dtype, "bits", driver.smooth_fills.front(), shape_with(inputs[i], driver.live_slice, shapes)).frozen = {
            inputs[i].name};
  }
  const DType first = settings.dtypes.front();
  add(first, saved, driver.smooth_fills.front(), settings.live ? driver.live : driver.live_groups(1));
  if (settings.live) add(first, "threads", driver.smooth_fills.front(), driver.live);
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  return with_variant(random_case(driver, settings, self, fills_of(driver), Backward::always), variants);
}

// A failure of either; that of the form that is run again is named as such.
std::optional<Finding> trouble_of(const Answer& plain, const Answer& answer) {
  std::optional<Finding> finding = trouble(plain);
  if (finding) finding->text = "the form that it runs again fails by itself: " + finding->text;
  return finding ? finding : trouble(answer);
}

Outcome equal(const Answer& plain, const Answer& answer, const std::string& what) {
  if (auto finding = trouble_of(plain, answer)) return {.finding = std::move(finding)};
  Outcome outcome;
  for (std::size_t i = 0; i < plain.gradients.size(); ++i)
    if (plain.gradients[i] && !answer.gradients[i]) {
      outcome.finding = Finding{.kind = "not-recomputed", .tensor = plain.gradients[i]->name};
      outcome.finding->text =
          fmt::format("{}: no gradient {} arrived, and without recompute there is one", what, plain.gradients[i]->name);
      return outcome;
    }
  outcome.finding = differ(plain, answer, "without recompute and " + what);
  if (outcome.finding) {
    outcome.finding->kind = "not-recomputed";
    return outcome;
  }
  for (const Array& output : plain.outputs) outcome.elements += static_cast<std::int64_t>(output.values.size());
  for (const auto& gradient : plain.gradients)
    if (gradient) outcome.elements += static_cast<std::int64_t>(gradient->values.size());
  outcome.bit_equal = outcome.elements;
  return outcome;
}

// The call, another, and the call again: all forwards first, so that what belongs to one forward may not be kept in a
// place that the next one takes.
Outcome check_between(const Expectation& expectation, const Subject& subject, const Call& call) {
  Case other = expectation.of();
  other.seed += 1;
  const Expectation its(expectation.driver(), other, expectation.threads());
  const std::vector<Call> calls{call, call_of(its, subject), call};
  const Answer plain = subject.call_plain(call), plain_other = subject.call_plain(calls[1]);
  Outcome outcome;
  for (bool last_first : {false, true}) {
    const std::vector<Answer> answers = subject.call_together(calls, last_first);
    for (std::size_t k = 0; k < calls.size() && !outcome.finding; ++k)
      merge(outcome, equal(k == 1 ? plain_other : plain, answers[k], "with it, other calls under way"));
  }
  return outcome;
}

Outcome check_saved(const Subject& subject, const Call& call) {
  const Answer answer = subject.call(call), plain = subject.call_plain(call);
  if (auto finding = trouble_of(plain, answer)) return {.finding = std::move(finding)};
  Outcome outcome;
  outcome.note = fmt::format("keeps {} bytes of tensors for its backward, {} without recompute", answer.saved_bytes,
                             plain.saved_bytes);
  if (plain.saved_bytes < worth_saving || answer.saved_bytes < plain.saved_bytes) return outcome;
  outcome.finding = Finding{.kind = "memory", .waiver = "memory-growth"};
  outcome.finding->text = fmt::format("it {}: nothing is saved by it", outcome.note);
  outcome.finding->expected = static_cast<double>(plain.saved_bytes);
  outcome.finding->got = static_cast<double>(answer.saved_bytes);
  return outcome;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const std::string& variant = expectation.of().variant;
  if (!subject.call_plain)
    throw std::invalid_argument(fmt::format("property: '{}' runs no other form again in its backward", subject.form));
  Call call = call_of(expectation, subject);
  if (variant == saved) return check_saved(subject, call);
  if (variant == "between") return check_between(expectation, subject, call);
  if (variant != "bits" && variant != "threads")
    throw std::invalid_argument("variant: '" + variant + "' is unknown to recompute");
  Outcome outcome;
  for (int threads : variant == "threads" ? std::vector{2, 5} : std::vector{1}) {
    call.threads = threads;
    Call twice = call;
    twice.backward_twice = true;
    merge(outcome, equal(subject.call_plain(call), subject.call(twice), "with it"));
  }
  return outcome;
}

}  // namespace

Property recompute_property() {
  return {.name = self,
          .proves =
              "bit-equal to the form that is run again in the backward: outputs, gradients and state, with choices in "
              "doubt, more threads, other calls between; and less is kept",
          .applies = [](const Driver& driver) { return !output_names(driver).empty(); },
          .plan = plan,
          .random = random,
          .check = check,
          .of_recompute = true};
}

}  // namespace fractus
