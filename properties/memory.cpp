// Property 9, memory: a forward holds no more beside its inputs and outputs than the form declares, in a fresh process
// for each cell. Bytes are counted by the worker's allocator, so the figure is the same on every run.
#include <fmt/format.h>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "memory";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  for (const Dims& dims : driver.memory_shapes)
    cases.push_back(base_case(driver, self, settings.dtypes.front(), dims, driver.smooth_fills.front()));
  return cases;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const Case& c = expectation.of();
  const Answer answer = subject.call_fresh(call_of(expectation, subject));
  if (auto finding = trouble(answer)) return {.finding = std::move(finding)};

  Outcome outcome;
  const auto [declared, timed_out, why_not] = subject.declared_elements(c.dims);
  if (!why_not.empty()) {
    outcome.finding = {.kind = timed_out ? "timed-out" : "declared-memory",
                       .text = "its declared memory cannot be had: " + why_not,
                       .broken = true};
    return outcome;
  }
  if (!declared) {
    outcome.note = fmt::format("holds {} bytes beside inputs and outputs at {}; nothing is declared",
                               answer.peak_extra_bytes, label(c));
    return outcome;
  }
  const std::int64_t allowed = *declared * static_cast<std::int64_t>(item_size(c.dtype));
  outcome.note = fmt::format("holds {} bytes beside inputs and outputs, {} declared", answer.peak_extra_bytes, allowed);
  if (answer.peak_extra_bytes <= allowed) return outcome;
  Finding finding;
  finding.kind = "memory";
  finding.waiver = "memory-growth";
  finding.text = fmt::format("the forward held {} bytes beside inputs and outputs, and the form declares at most {}",
                             answer.peak_extra_bytes, allowed);
  finding.expected = static_cast<double>(allowed);
  finding.got = static_cast<double>(answer.peak_extra_bytes);
  outcome.finding = finding;
  return outcome;
}

}  // namespace

Property memory_property() {
  return {.name = self,
          .proves = "no more memory beside inputs and outputs than declared, as the sequence grows",
          .applies = [](const Driver& driver) { return !driver.memory_shapes.empty(); },
          .plan = plan,
          .check = check};
}

}  // namespace fractus
