// Property 12, identity: the form's own code over a finite field, where nothing rounds, against the definition over the
// same field, for kernels whose definition is a rational function. Equal at random points: it is the same function, but
// for a stated chance. Another one: DIFFERENT where floats show it too, else its algebra differs below rounding.
#include <fmt/format.h>

#include <algorithm>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/explained.h"
#include "properties/induction.h"
#include "properties/over_field.h"
#include "properties/split_over_field.h"

namespace fractus {
namespace {

constexpr const char* self = "identity";
constexpr const char* whole = "whole";
constexpr const char* split = "split";
constexpr const char* induction = "induction";
constexpr std::uint64_t most_attempts = 8;  // at one draw, each of which may hit a pole

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::vector<Dims> shapes = driver.field_shapes(settings.block);
  const std::vector<std::string> outputs = output_names(driver), optional = optional_inputs(driver);
  const std::int64_t block = settings.block;
  for (DType dtype : settings.dtypes) {
    // The smaller field takes more draws, and is there for forms with a path of their own for float32: where the larger
    // one has every border, it has some.
    const bool brief = dtype == DType::float32 && settings.dtypes.size() > 1;
    const auto add = [&](const Dims& dims, const char* variant) -> Case& {
      Case c = base_case(driver, self, dtype, dims, driver.smooth_fills.front());
      c.variant = variant;
      c.cotangents = outputs;
      cases.push_back(c);
      return cases.back();
    };
    const auto some = [&](std::size_t i) -> const Dims& { return shapes[std::min(i, shapes.size() - 1)]; };
    for (std::size_t i = 0; i < shapes.size(); ++i)
      if (!brief || i % 3 == 0) add(shapes[i], whole);
    for (const std::string& output : outputs) add(some(3), whole).cotangents = {output};
    add(some(3), whole).cotangents.clear();
    // Every set of optional inputs left out, where a block is ragged and where there is one step alone.
    for (std::size_t mask = 1; mask < std::size_t{1} << optional.size(); ++mask)
      for (const std::size_t at : {std::size_t{0}, std::size_t{3}}) {
        if (brief && at != 3) continue;
        Case& c = add(some(at), whole);
        for (std::size_t i = 0; i < optional.size(); ++i)
          if ((mask >> i) & 1) c.absent.push_back(optional[i]);
      }
    if (driver.carry.empty() || brief) continue;
    for (const std::vector<std::int64_t>& pieces :
         {std::vector<std::int64_t>{block, block + 1}, {block, block, 1}, {1, block}}) {
      Case& c = add(shapes.front(), split);
      c.pieces = pieces;
      c.dims[driver.sequence_symbol] = 0;
      for (const std::int64_t piece : pieces) c.dims[driver.sequence_symbol] += piece;
    }
    add(shapes.front(), induction).dims[driver.sequence_symbol] = 2 * block;
  }
  return cases;
}

FieldAnswer answer_of(Expectation& expectation, const Subject& subject, const FieldCall& call) {
  if (expectation.of().variant == whole) return subject.call_over_field(call);
  return call_in_pieces(expectation.driver(), call, expectation.of().pieces, subject);
}

// What kept a call from being judged, where something did.
std::optional<Remark> unjudged(const FieldAnswer& answer) {
  switch (answer.status) {
    case FieldStatus::ok:
    case FieldStatus::pole: return std::nullopt;
    case FieldStatus::not_algebraic:
      if (!answer.remarks.empty()) return answer.remarks.back();
      return Remark{.kind = "non-algebraic", .detail = answer.message};
    // A form may ask a tensor for its dtype or device, and may do over floats what it refuses here: no fault of its
    // own.
    case FieldStatus::failed: return Remark{.kind = "failed", .operation = "the call", .detail = answer.message};
  }
  return std::nullopt;
}

// One draw, anew where it hits a pole of the definition or of the form. Empty where the form cannot be judged; the
// outcome says why.
std::optional<Trial> tried(Expectation& expectation, const Subject& subject, std::uint64_t draw, Outcome& outcome) {
  for (std::uint64_t attempt = 0; attempt < most_attempts; ++attempt) {
    Trial trial{field_call(expectation, subject, draw * most_attempts + attempt), {}, {}};
    try {
      trial.expected = expectation.driver().over_field(trial.call);
    } catch (const std::domain_error&) {
      continue;
    }
    trial.answer = answer_of(expectation, subject, trial.call);
    add_remarks(outcome.remarks, trial.answer.remarks);
    if (trial.answer.status == FieldStatus::ok) return trial;
    outcome.not_algebraic = unjudged(trial.answer);
    if (outcome.not_algebraic) return std::nullopt;
  }
  outcome.not_algebraic = Remark{
      .kind = "pole", .operation = "a division by 0", .detail = fmt::format("at {} points in a row", most_attempts)};
  return std::nullopt;
}

std::int64_t elements_of(const oracle::FieldExpected& expected) {
  std::int64_t count = 0;
  for (const Residues& output : expected.outputs) count += static_cast<std::int64_t>(output.values.size());
  for (const auto& gradient : expected.gradients)
    if (gradient) count += static_cast<std::int64_t>(gradient->values.size());
  return count;
}

// The draws again, all of them, for what holds in each; then the same fault over floats.
void differ(Expectation& expectation, const Subject& subject, const Mismatch& mismatch, std::vector<Trial> trials,
            int draws, Outcome& outcome) {
  for (int draw = static_cast<int>(trials.size()); draw < draws; ++draw)
    if (auto trial = tried(expectation, subject, static_cast<std::uint64_t>(draw), outcome))
      trials.push_back(std::move(*trial));
  outcome.not_algebraic.reset();  // it was judged
  outcome.algebra =
      fmt::format("over {}, {}{} is {} where the definition gives {}", field_name(trials.front().call.bits),
                  mismatch.tensor, to_string(mismatch.index), mismatch.got, mismatch.expected);
  if (const std::string why = explained(expectation.driver(), mismatch.tensor, trials); !why.empty())
    outcome.algebra += fmt::format("; {} is {}", mismatch.tensor, why);
  auto shown = float_witness(expectation, subject, witness_fills(expectation.driver()));
  if (!shown) return;
  outcome.finding = std::move(shown->second.finding);
  outcome.finding->text += "; " + outcome.algebra;
  outcome.witness = std::move(shown->first);
}

// A comparison has one answer at a generic point, and a program may be right on that branch alone: x.abs() for x, or
// what it does of negative values. Floats lie on the others, so a form that compares is called over them as well, in
// another distribution from case to case.
void look_at_other_branches(Expectation& expectation, const Subject& subject, Outcome& outcome) {
  const Case& c = expectation.of();
  if (std::none_of(outcome.remarks.begin(), outcome.remarks.end(),
                   [](const Remark& remark) { return remark.kind == "comparison" || remark.kind == "branch"; }))
    return;
  const std::vector<std::string> fills = witness_fills(expectation.driver());
  auto shown = float_witness(expectation, subject, {fills[c.seed % fills.size()]});
  if (!shown) return;
  outcome.algebra = fmt::format(
      "over {} it is the definition's function: the fault lies where a comparison has another answer than at a generic "
      "point",
      field_name(field_bits(c.dtype)));
  outcome.finding = std::move(shown->second.finding);
  outcome.finding->text += "; " + outcome.algebra;
  outcome.witness = std::move(shown->first);
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const Driver& driver = expectation.driver();
  const Case& c = expectation.of();
  if (c.variant == induction) return check_induction(expectation, subject);
  if (c.variant != whole && c.variant != split)
    throw std::invalid_argument("variant: '" + c.variant + "' is unknown to identity");
  const Certainty certainty = certainty_of(driver.degrees(field_call(expectation, subject, 0)), field_bits(c.dtype));
  Outcome outcome;
  std::vector<Trial> trials;
  for (int draw = 0; draw < certainty.draws; ++draw) {
    auto trial = tried(expectation, subject, static_cast<std::uint64_t>(draw), outcome);
    if (!trial) return outcome;
    const auto mismatch = first_mismatch(trial->expected, trial->answer);
    trials.push_back(std::move(*trial));
    if (!mismatch) continue;
    differ(expectation, subject, *mismatch, std::move(trials), certainty.draws, outcome);
    return outcome;
  }
  outcome.elements = outcome.bit_equal = elements_of(trials.front().expected);
  outcome.escape = certainty.escape;
  look_at_other_branches(expectation, subject, outcome);
  return outcome;
}

}  // namespace

Property identity_property() {
  return {
      .name = self,
      .proves =
          "the form's own code, gradients included, is the definition's function over a finite field, where nothing "
          "rounds",
      .applies = [](const Driver& driver) { return static_cast<bool>(driver.over_field); },
      .plan = plan,
      .check = check,
      // Most known-wrong forms differ here as everywhere, and those that floats alone show would be no gap.
      .measures_power = false};
}

}  // namespace fractus
