// Property 9, memory: a forward holds no more beside its inputs and outputs than the form declares, and a call that is
// over holds nothing. Tensors are counted by the worker's allocator, so their figure is the same on every run; memory
// from anywhere else shows in the process's resident size, with the allowance that a process needs for itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "memory";
// What the process itself may add to its resident size during a call: arenas, a library's first buffers.
constexpr std::int64_t resident_allowance = std::int64_t{16} << 20;
constexpr std::size_t calls_to_settle = 4, calls_to_watch = 40;
// The heap counts what its caches hold back as used, about 10 KiB for right forms over these calls. A form that keeps
// one number a token of these cells keeps twice the allowance.
constexpr std::int64_t heap_allowance = 32 << 10;

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  for (const Dims& dims : driver.memory_shapes)
    cases.push_back(base_case(driver, self, settings.dtypes.front(), dims, driver.smooth_fills.front()));
  for (Case& c : cases) c.variant = "peak";
  if (driver.flat)
    for (bool backward : {false, true}) {
      if (backward && output_names(driver).empty()) continue;
      Case c = base_case(driver, self, settings.dtypes.front(), driver.flat->dims, driver.smooth_fills.front());
      c.variant = "flat";
      if (backward) c.cotangents = output_names(driver);
      cases.push_back(c);
    }
  for (bool backward : {false, true}) {
    if (backward && output_names(driver).empty()) continue;
    Case c =
        base_case(driver, self, settings.dtypes.front(), driver.memory_shapes.front(), driver.smooth_fills.front());
    c.variant = "kept";
    if (backward) c.cotangents = output_names(driver);
    cases.push_back(c);
  }
  if (driver.flat && !output_names(driver).empty())
    for (const TensorSpec& spec : differentiable_inputs(driver)) {  // a form may go another way where one wants none
      Case c = base_case(driver, self, settings.dtypes.front(), driver.flat->dims, driver.smooth_fills.front());
      c.variant = "flat";
      c.cotangents = output_names(driver);
      c.frozen = {spec.name};
      cases.push_back(c);
    }
  return cases;
}

Finding too_much(std::string text, std::int64_t got, std::int64_t allowed) {
  Finding finding;
  finding.kind = "memory";
  finding.waiver = "memory-growth";
  finding.text = std::move(text);
  finding.expected = static_cast<double>(allowed);
  finding.got = static_cast<double>(got);
  return finding;
}

// A size of a series: the extent of `symbol` grows in it, the others stand in its name.
Held held_at(const std::string& what, Dims dims, const std::string& symbol, std::int64_t bytes,
             std::optional<std::int64_t> allowed) {
  Held held{.symbol = symbol, .extent = dims.at(symbol), .bytes = bytes, .allowed = allowed};
  dims.erase(symbol);
  held.series = dims.empty() ? what : fmt::format("{}, {}", what, text_of(dims));
  return held;
}

// The second call of a process of its own: the first has brought in what every call needs.
Outcome check_peak(Expectation& expectation, const Subject& subject) {
  const Case& c = expectation.of();
  Case small = c;
  if (const std::string& symbol = expectation.driver().sequence_symbol; !symbol.empty()) small.dims[symbol] = 1;
  Expectation first(expectation.driver(), small, expectation.threads());
  Call call = call_of(expectation, subject);
  call.watch_memory = true;
  const std::vector<Answer> answers = subject.call_fresh({call_of(first, subject), call});
  for (const Answer& answer : answers)
    if (auto finding = trouble(answer)) return {.finding = std::move(finding)};
  const Answer& answer = answers.back();

  const auto item = static_cast<std::int64_t>(item_size(c.dtype));
  Outcome outcome;
  const auto [declared, timed_out, why_not] = subject.declared_elements(c.dims);
  if (!why_not.empty()) {
    outcome.finding = {.kind = timed_out ? "timed-out" : "declared-memory",
                       .text = "its declared memory cannot be had: " + why_not,
                       .broken = true};
    return outcome;
  }
  if (const std::string& symbol = expectation.driver().growing_symbol; !symbol.empty())
    outcome.held = {held_at("forward", c.dims, symbol, answer.peak_extra_bytes,
                            declared ? std::optional(*declared * item) : std::nullopt)};
  if (!declared) {
    outcome.note = fmt::format("holds {} bytes beside inputs and outputs at {}; nothing is declared",
                               answer.peak_extra_bytes, label(c));
    return outcome;
  }
  const std::int64_t allowed = *declared * item;
  outcome.note = fmt::format("holds {} bytes beside inputs and outputs, {} declared", answer.peak_extra_bytes, allowed);
  std::int64_t outputs = 0;
  for (const Array& output : answer.outputs) outputs += static_cast<std::int64_t>(output.values.size()) * item;
  const std::int64_t resident = allowed + outputs + resident_allowance;
  if (answer.peak_extra_bytes > allowed)
    outcome.finding =
        too_much(fmt::format("the forward held {} bytes beside inputs and outputs, and the form declares at most {}",
                             answer.peak_extra_bytes, allowed),
                 answer.peak_extra_bytes, allowed);
  else if (answer.resident_growth_bytes > resident)
    outcome.finding = too_much(
        fmt::format("the forward raised the process's resident size by {} bytes, most of it outside of tensors; the {} "
                    "that are declared, the outputs and {} for the process itself explain {}",
                    answer.resident_growth_bytes, allowed, resident_allowance, resident),
        answer.resident_growth_bytes, resident);
  return outcome;
}

// The same call again and again: after a few, nothing new stays.
Outcome check_kept(Expectation& expectation, const Subject& subject) {
  Call call = call_of(expectation, subject);
  call.watch_memory = true;
  const std::vector<Answer> answers = subject.call_fresh(std::vector<Call>(calls_to_settle + calls_to_watch + 1, call));
  Outcome outcome;
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (auto finding = trouble(answers[i])) return {.finding = std::move(finding)};
    if (i >= calls_to_settle && i < calls_to_settle + calls_to_watch) kept += answers[i].kept_bytes;
  }
  const std::int64_t heap = answers.back().heap_bytes - answers[calls_to_settle].heap_bytes;
  outcome.note = fmt::format("keeps {} bytes of tensors and {} of the heap in {} calls", kept, heap, calls_to_watch);
  if (kept > 0)
    outcome.finding = too_much(fmt::format("{} bytes of tensors were kept by {} equal calls, after {} to settle", kept,
                                           calls_to_watch, calls_to_settle),
                               kept, 0);
  else if (heap > heap_allowance)
    outcome.finding = too_much(fmt::format("the heap grew by {} bytes in {} equal calls, after {} to settle", heap,
                                           calls_to_watch, calls_to_settle),
                               heap, heap_allowance);
  return outcome;
}

// What the contract bounds whatever the form declares: from one size to a much larger one, in a process of their own.
Outcome check_flat(Expectation& expectation, const Subject& subject) {
  const Case& c = expectation.of();
  const std::optional<Flat>& flat = expectation.driver().flat;
  if (!flat) throw std::invalid_argument("variant: the kernel's contract bounds no memory");
  Dims few = c.dims;
  few[flat->symbol] = flat->few;
  const std::int64_t item = static_cast<std::int64_t>(item_size(c.dtype)), allowed = flat->allowance(c.dims) * item;
  const std::int64_t all = c.dims.at(flat->symbol) * c.dims.at(flat->other) * item;  // of a form that keeps all of it
  if (c.dims.at(flat->symbol) <= flat->few || all < 4 * allowed) return {.note = "too small to tell growth"};
  const bool backward = !c.cotangents.empty();
  Case fewer = c;
  fewer.dims = few;
  Expectation its_few(expectation.driver(), fewer, expectation.threads());
  Call at_few = call_of(its_few, subject), at_all = call_of(expectation, subject);
  at_few.watch_memory = at_all.watch_memory = true;
  // What a first call brings in is there when the larger ones come.
  const std::vector<Answer> answers = subject.call_fresh({at_few, at_few, at_all, at_all});
  for (const Answer& answer : answers)
    if (auto finding = trouble(answer)) return {.finding = std::move(finding)};
  const auto held = [&](const Answer& answer) {
    return backward ? answer.peak_with_backward_bytes : answer.peak_extra_bytes;
  };
  const std::int64_t small = held(answers[1]), large = held(answers[3]), resident = answers[2].resident_growth_bytes;
  Outcome outcome;
  outcome.note =
      fmt::format("{} holds {} bytes beside inputs, outputs and gradients at {}, {} at {}",
                  backward ? "forward and backward" : "the forward", small, text_of(few), large, text_of(c.dims));
  std::string what = backward ? "forward and backward" : "forward alone";
  if (!c.frozen.empty()) what += fmt::format(" without d{}", fmt::join(c.frozen, ","));
  outcome.held = {held_at(what, few, flat->symbol, small, std::nullopt),
                  held_at(what, c.dims, flat->symbol, large, small + allowed)};
  if (large - small > allowed)
    outcome.finding =
        too_much(fmt::format("{}; {} allows {} bytes more", outcome.note, flat->text, allowed), large - small, allowed);
  else if (!backward && resident > allowed + resident_allowance)  // a graph's own nodes are no (N,V), and may be many
    outcome.finding = too_much(
        fmt::format("the forward raises the process's resident size by {} bytes from {} to {}, most of it outside of "
                    "tensors; {} and {} for the process itself explain {}",
                    resident, text_of(few), text_of(c.dims), flat->text, resident_allowance,
                    allowed + resident_allowance),
        resident, allowed + resident_allowance);
  return outcome;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const std::string& variant = expectation.of().variant;
  if (variant == "peak") return check_peak(expectation, subject);
  if (variant == "flat") return check_flat(expectation, subject);
  if (variant == "kept") return check_kept(expectation, subject);
  throw std::invalid_argument("variant: '" + variant + "' is unknown to memory");
}

}  // namespace

Property memory_property() {
  return {.name = self,
          .proves =
              "no more memory beside inputs and outputs than declared, as the sequence grows, and none after the call",
          .applies = [](const Driver& driver) { return !driver.memory_shapes.empty(); },
          .plan = plan,
          .check = check,
          .patience = 40};  // each check takes processes of its own
}

}  // namespace fractus
