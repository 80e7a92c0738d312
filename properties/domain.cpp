// Property, domain: input that the contract excludes is refused by an exception, and costs nothing that comes after it.
// A form that computes with it instead may answer what the contract allows beside (a row that is left out, a NaN that
// shows); anything else would go into a training run as if it were a number.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"

namespace fractus {
namespace {

constexpr const char* self = "domain";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.shapes(settings.block);
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    for (const Violation& violation : driver.violations)
      for (int k = 0; k < 4; ++k) {
        Case c = base_case(driver, self, dtype, shapes[(7 * turn++) % shapes.size()], driver.smooth_fills.front());
        c.variant = violation.name;
        if (k % 2 == 1) c.cotangents = output_names(driver);
        cases.push_back(c);
      }
  }
  return cases;
}

bool all_nan(const Answer& answer) {
  return std::all_of(answer.outputs.begin(), answer.outputs.end(), [](const Array& output) {
    return std::all_of(output.values.begin(), output.values.end(), [](double x) { return std::isnan(x); });
  });
}

// A scalar that is an extent of an output, and spoiled, leaves its cotangent without a shape.
bool cotangents_fit(const Contract& contract, const Problem& problem, const Problem& spoiled) {
  const auto spoils = [&](const std::string& symbol) {
    const auto was = problem.scalars.find(symbol);
    return was != problem.scalars.end() && was->second != spoiled.scalars.at(symbol);
  };
  return std::none_of(contract.outputs.begin(), contract.outputs.end(), [&](const TensorSpec& output) {
    return std::any_of(output.dims.begin(), output.dims.end(), spoils);
  });
}

// What the form made of the spoiled problem; empty where it may.
std::optional<Finding> answered(Expectation& expectation, const Subject& subject, const Violation& violation,
                                Problem spoiled, std::string& note) {
  Case c = expectation.of();
  if (!cotangents_fit(*expectation.driver().contract, expectation.problem(), spoiled)) {
    c.cotangents.clear();
    for (auto& cotangent : spoiled.cotangents) cotangent.reset();
  }
  Expectation its(expectation.driver(), c, spoiled, expectation.threads());
  Answer answer = subject.call(call_of(its, subject));
  if (answer.status == Status::raised) return std::nullopt;
  // A NaN of all bits, which vector instructions make of any other, looks like memory that nobody wrote.
  if (violation.may_be_nan) std::erase_if(answer.breaches, [](const Breach& b) { return b.kind == "unwritten"; });
  if (auto finding = trouble(answer)) {
    finding->text = fmt::format("given {}: {}", violation.text, finding->text);
    return finding;
  }
  if (violation.may_be_nan && all_nan(answer)) return std::nullopt;
  std::string instead;
  if (violation.same_as) {
    Driver allowing = expectation.driver();
    if (allowing.law)
      allowing.law = [&](const Problem& given, DType dtype) {
        return expectation.driver().law(violation.same_as(given), dtype);
      };
    else
      allowing.expected = [&](const Problem& given, DType dtype, const Judged& judged) {
        oracle::Expected expected = expectation.driver().expected(violation.same_as(given), dtype, judged);
        return violation.restored ? violation.restored(std::move(expected), given) : expected;
      };
    Expectation allowed(allowing, c, spoiled, expectation.threads());
    Outcome outcome = compare(allowed, answer);
    if (!outcome.finding) {
      note = fmt::format("{}: {}", violation.text,
                         violation.allowed.empty() ? "computed with, as the contract allows" : violation.allowed);
      return std::nullopt;
    }
    instead = "; " + outcome.finding->text;
  }
  Finding finding{.kind = "unchecked-input", .waiver = "unchecked-input"};
  finding.text = fmt::format("{} is computed with instead of refused by an exception{}", violation.text, instead);
  return finding;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const auto& violations = expectation.driver().violations;
  const auto violation = std::find_if(violations.begin(), violations.end(),
                                      [&](const Violation& v) { return v.name == expectation.of().variant; });
  if (violation == violations.end())
    throw std::invalid_argument("variant: '" + expectation.of().variant + "' is unknown to domain");
  Outcome outcome;
  outcome.finding = answered(expectation, subject, *violation,
                             violation->spoiled(expectation.problem(), expectation.of().seed), outcome.note);
  if (outcome.finding) return outcome;
  merge(outcome, call_and_compare(expectation, subject, call_of(expectation, subject)));
  if (outcome.finding) outcome.finding->text = fmt::format("after {}: {}", violation->text, outcome.finding->text);
  return outcome;
}

}  // namespace

Property domain_property() {
  return {.name = self,
          .proves = "input outside of the contract's domain is refused, and the call after it is right",
          .applies = [](const Driver& driver) { return !driver.violations.empty(); },
          .plan = plan,
          .check = check};
}

}  // namespace fractus
