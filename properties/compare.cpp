#include "properties/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace fractus {
namespace {

// Outputs may be detached where a tensor is empty (KERNELS.md).
bool is_empty_call(const Problem& problem) {
  return std::any_of(problem.inputs.begin(), problem.inputs.end(),
                     [](const auto& input) { return input && input->values.empty(); });
}

// -0 and 0 are the same number to every contract; NaN is no number to any.
bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a + 0.0) == std::bit_cast<std::uint64_t>(b + 0.0);
}

Finding element_finding(const std::string& kind, const oracle::ExpectedTensor& expected, double radius_per_tolerance,
                        std::size_t i, double got) {
  Finding finding;
  finding.kind = kind;
  finding.tensor = expected.name;
  finding.index = index_of(i, expected.shape);
  finding.expected = expected.value[i];
  finding.tolerance = expected.tolerance[i];
  finding.radius = expected.tolerance[i] * radius_per_tolerance;
  finding.got = got;
  const std::string where = fmt::format("{}{}", expected.name, to_string(finding.index));
  if (kind == "value")
    finding.text =
        fmt::format("{} is {:.9g}, the definition gives {:.9g}; the error is {:.3g}, a correct kernel may reach {:.3g}",
                    where, got, finding.expected, std::fabs(got - finding.expected), finding.tolerance);
  else if (kind == "bits")
    finding.text = fmt::format("{} is {:.17g}, and every correct order of operations gives exactly {:.17g} here", where,
                               got, finding.expected);
  else
    finding.text = fmt::format("{} is {}, the definition gives {:.9g}", where, got, finding.expected);
  return finding;
}

// `either` is `tensor` itself where no choice is in doubt, and for outputs, which follow the branch that y shows.
void compare_tensor(const oracle::Expected& expected, const oracle::ExpectedTensor& tensor,
                    const oracle::ExpectedTensor& either, const std::vector<double>& got, Outcome& outcome) {
  double worst = 0;
  Histogram& histogram = outcome.histogram[tensor.name];
  std::optional<std::size_t> worst_at;
  double worst_different = -1;
  for (std::size_t i = 0; i < tensor.value.size(); ++i) {
    ++outcome.elements;
    if (std::isnan(got[i])) {
      // No bound excuses a NaN where the definition has none.
      if (std::isnan(tensor.value[i]))
        ++outcome.undecidable;
      else if (!outcome.finding)
        outcome.finding = element_finding("not-finite", tensor, expected.radius_per_tolerance, i, got[i]);
      continue;
    }
    const oracle::Judgement judgement = oracle::judge(tensor, either, expected.radius_per_tolerance, i, got[i]);
    if (judgement.verdict == oracle::Verdict::undecidable) ++outcome.undecidable;
    // Where there is room for a choice that the outputs do not tell, the ratio may be of the other one.
    const bool untold = !expected.room.empty() && either.tolerance[i] > tensor.tolerance[i];
    if (judgement.verdict == oracle::Verdict::equal && !untold) {
      worst = std::max(worst, judgement.ratio);
      histogram.add(judgement.ratio);
    }
    if (judgement.verdict == oracle::Verdict::different) histogram.add(judgement.ratio);
    if (judgement.verdict == oracle::Verdict::different && judgement.ratio > worst_different) {
      worst_different = judgement.ratio;
      worst_at = i;
    }
  }
  double& ratio = outcome.worst_ratio[tensor.name];
  ratio = std::max({ratio, worst, worst_different});
  if (!worst_at || outcome.finding) return;
  outcome.finding = element_finding(std::isfinite(got[*worst_at]) ? "value" : "not-finite", either,
                                    expected.radius_per_tolerance, *worst_at, got[*worst_at]);
  if (either.tolerance[*worst_at] != tensor.tolerance[*worst_at])
    outcome.finding->text += ", whichever way the choices in doubt go";
}

Outcome outputs_against(const oracle::Expected& expected, const Answer& answer) {
  Outcome outcome;
  outcome.choices_in_doubt = static_cast<std::int64_t>(expected.choices_in_doubt);
  outcome.choices_flipped = static_cast<std::int64_t>(expected.choices_flipped);
  outcome.flip_moves = expected.flip_moves;
  for (std::size_t i = 0; i < expected.outputs.size(); ++i)
    compare_tensor(expected, expected.outputs[i], expected.outputs[i], answer.outputs[i].values, outcome);
  return outcome;
}

// One tensor of an answer: the name for the report, the values; absent where the answer has none.
struct Part {
  std::string name;
  const Array* array;
};

std::vector<Part> parts_of(const Answer& answer) {
  std::vector<Part> parts;
  for (const Array& output : answer.outputs) parts.push_back({output.name, &output});
  for (const auto& gradient : answer.gradients)
    if (gradient) parts.push_back({gradient->name, &*gradient});
  return parts;
}

// A draw is right on its own terms as long as it can come from the law at all.
Outcome compare_draw(Expectation& expectation, const Answer& answer) {
  Outcome outcome;
  const std::vector<double>& tokens = answer.outputs.front().values;
  const auto& [probability, slack] = expectation.law();
  const std::size_t V = tokens.empty() ? 0 : probability.size() / tokens.size();
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    ++outcome.elements;
    const double token = tokens[n];
    const bool there = token >= 0 && token < static_cast<double>(V);
    const double chance = there ? probability[n * V + static_cast<std::size_t>(token)] : 0;
    // A row whose law has no bound, as where masked logits are all that there is, may draw any token of the vocabulary.
    const double at_most = !there ? 0 : std::isinf(slack[n]) ? 1 : chance * std::exp(slack[n]);
    if (at_most >= oracle::least_probability || outcome.finding) continue;
    Finding finding{.kind = "value", .tensor = answer.outputs.front().name, .index = {static_cast<std::int64_t>(n)}};
    finding.got = token;
    finding.text = there ? fmt::format("row {} drew the token {}, whose probability is {:.3g}", n, token, chance)
                         : fmt::format("row {} drew {}; wanted a token in [0, {})", n, token, V);
    outcome.finding = std::move(finding);
  }
  return outcome;
}

}  // namespace

Shape index_of(std::size_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[d]);
    index[d] = static_cast<std::int64_t>(flat % extent);
    flat /= extent;
  }
  return index;
}

Call call_of(const Expectation& expectation, const Subject& subject) {
  const Case& c = expectation.of();
  Call call;
  call.kernel = c.kernel;
  call.form = subject.form;
  call.settings = subject.settings;
  for (const auto& [parameter, value] : c.settings)
    if (subject.settings.contains(parameter)) call.settings[parameter] = value;
  call.inputs = expectation.problem().inputs;
  call.scalars = expectation.problem().scalars;
  call.cotangents = expectation.problem().cotangents;
  call.layouts = c.layouts;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const TensorSpec& spec = expectation.driver().contract->inputs[i];
    call.gradients.push_back(call.inputs[i].has_value() && spec.differentiable && !c.cotangents.empty() &&
                             !contains(c.frozen, spec.name));
  }
  return call;
}

std::optional<Finding> trouble(const Answer& answer) {
  const auto broken = [](const std::string& kind, const std::string& text) {
    Finding finding;
    finding.kind = kind;
    finding.text = text;
    finding.broken = true;
    return finding;
  };
  switch (answer.status) {
    case Status::ok: break;
    case Status::raised: return broken("raised", "it raised: " + answer.message);
    case Status::crashed: return broken("crashed", "its process ended: " + answer.message);
    case Status::timed_out: return broken("timed-out", "no answer in time: " + answer.message);
    case Status::out_of_memory: return broken("out-of-memory", "out of memory: " + answer.message);
  }
  if (answer.breaches.empty()) return std::nullopt;
  Finding finding = broken(answer.breaches.front().kind, answer.breaches.front().text);
  if (finding.kind == "second-backward") finding.waiver = "single-backward";
  return finding;
}

Outcome compare_outputs(Expectation& expectation, const Answer& answer) {
  if (!expectation.driver().expected) return compare_draw(expectation, answer);
  return outputs_against(*expectation.expected(answer), answer);
}

Outcome compare(Expectation& expectation, const Answer& answer) {
  if (!expectation.driver().expected) return compare_draw(expectation, answer);
  const auto expected = expectation.expected(answer);
  // Choices that the outputs have settled stay open for the gradients, unless it is the outputs that show them.
  const Driver& driver = expectation.driver();
  const bool settled = expected->choices_in_doubt == 0 || driver.choices_shown || driver.choices_settled;
  const auto open = settled ? expected : expectation.either(answer.add_depth);
  Outcome outcome = outputs_against(*expected, answer);
  const Case& c = expectation.of();
  for (std::size_t i = 0; i < expected->gradients.size(); ++i) {
    const auto& gradient = expected->gradients[i];
    const TensorSpec& spec = expectation.driver().contract->inputs[i];
    const bool clean = !outcome.finding;
    if (!gradient || !expectation.problem().inputs[i] || contains(c.frozen, spec.name)) continue;
    const oracle::ExpectedTensor& either = expected->room.empty() ? *open->gradients[i] : *expected->room[i];
    if (i < answer.gradients.size() && answer.gradients[i])
      compare_tensor(*expected, *gradient, either, answer.gradients[i]->values, outcome);
    else if (!is_empty_call(expectation.problem()))
      compare_tensor(*expected, *gradient, either, std::vector<double>(gradient->value.size(), 0.0), outcome);
    if (clean && outcome.finding && outcome.finding->kind == "not-finite" && expected->shared_edge)
      outcome.finding->waiver = "shared-edges";
  }
  return outcome;
}

void demand_exact(Expectation& expectation, const Answer& answer, Outcome& outcome) {
  const auto expected = expectation.expected(answer);
  const Exactness& exactness = expectation.exactness();
  const auto demand = [&](const std::vector<double>& exact, const oracle::ExpectedTensor& tensor, const Array& array) {
    for (std::size_t i = 0; i < exact.size(); ++i) {
      if (same_bits(exact[i], array.values[i])) {
        ++outcome.bit_equal;
        if (std::isinf(tensor.tolerance[i])) --outcome.undecidable;  // its bits have decided what no bound could
      } else if (!outcome.finding) {
        outcome.finding = element_finding("bits", tensor, expected->radius_per_tolerance, i, array.values[i]);
        outcome.finding->expected = exact[i];
        outcome.finding->tolerance = outcome.finding->radius = 0;
      }
    }
  };
  for (std::size_t i = 0; i < expected->outputs.size(); ++i)
    if (exactness.outputs[i]) demand(*exactness.outputs[i], expected->outputs[i], answer.outputs[i]);
  for (std::size_t i = 0; i < exactness.gradients.size(); ++i)
    if (exactness.gradients[i] && i < answer.gradients.size() && answer.gradients[i])
      demand(*exactness.gradients[i], *expected->gradients[i], *answer.gradients[i]);
}

std::optional<Finding> differ(const Answer& first, const Answer& second, const std::string& what) {
  const std::vector<Part> a = parts_of(first), b = parts_of(second);
  for (std::size_t k = 0; k < a.size() && k < b.size(); ++k)
    for (std::size_t i = 0; i < a[k].array->values.size() && i < b[k].array->values.size(); ++i)
      if (!same_bits(a[k].array->values[i], b[k].array->values[i])) {
        Finding finding;
        finding.kind = "not-repeated";
        finding.tensor = a[k].name;
        finding.index = index_of(i, a[k].array->shape);
        finding.expected = a[k].array->values[i];
        finding.got = b[k].array->values[i];
        finding.text = fmt::format("{}: {}{} is {:.17g} and then {:.17g}, although the form declares bit equality",
                                   what, finding.tensor, to_string(finding.index), finding.expected, finding.got);
        return finding;
      }
  return std::nullopt;
}

void merge(Outcome& a, Outcome b) {
  if (!a.finding) a.finding = std::move(b.finding);
  for (const auto& [tensor, ratio] : b.worst_ratio) a.worst_ratio[tensor] = std::max(a.worst_ratio[tensor], ratio);
  for (const auto& [tensor, histogram] : b.histogram) a.histogram[tensor].add(histogram);
  a.elements += b.elements;
  a.undecidable += b.undecidable;
  a.choices_in_doubt += b.choices_in_doubt;
  a.choices_flipped += b.choices_flipped;
  a.flip_moves = std::max(a.flip_moves, b.flip_moves);
  a.bit_equal += b.bit_equal;
  if (a.note.empty()) a.note = std::move(b.note);
}

Outcome call_and_compare(Expectation& expectation, const Subject& subject, const Call& call) {
  const auto beside = expectation.begin();
  const Answer answer = subject.call(call);
  if (auto finding = trouble(answer)) return {.finding = std::move(finding)};
  return compare(expectation, answer);
}

}  // namespace fractus
