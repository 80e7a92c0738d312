#include "properties/over_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "properties/compare.h"
#include "properties/random.h"

namespace fractus {
namespace {

constexpr double most_escape = 1e-15;
// How many times the definition's degree a form's own may be, for the stated probability to hold of it.
constexpr std::int64_t assumed_factor = 1000;

Residues drawn(const std::string& name, const Shape& shape, int bits, Random& random) {
  const std::uint64_t p = (std::uint64_t{1} << bits) - 1;
  Residues residues{name, shape, {}};
  residues.values.reserve(static_cast<std::size_t>(element_count(shape)));
  while (static_cast<std::int64_t>(residues.values.size()) < element_count(shape))
    if (const std::uint64_t x = random.bits() >> (64 - bits); x < p) residues.values.push_back(x);  // p itself is 0
  return residues;
}

const Residues* got_of(const FieldAnswer& answer, const oracle::FieldExpected& expected, std::size_t i) {
  const std::size_t outputs = expected.outputs.size();
  if (i < outputs) return i < answer.outputs.size() ? &answer.outputs[i] : nullptr;
  const std::size_t at = i - outputs;
  return at < answer.gradients.size() && answer.gradients[at] ? &*answer.gradients[at] : nullptr;
}

const Residues* wanted_of(const oracle::FieldExpected& expected, std::size_t i) {
  if (i < expected.outputs.size()) return &expected.outputs[i];
  const auto& gradient = expected.gradients[i - expected.outputs.size()];
  return gradient ? &*gradient : nullptr;
}

std::optional<Mismatch> mismatch_of(const Residues& wanted, const Residues* got) {
  for (std::size_t e = 0; e < wanted.values.size(); ++e) {
    const std::uint64_t its = got != nullptr && e < got->values.size() ? got->values[e] : 0;
    if (its != wanted.values[e]) return Mismatch{wanted.name, index_of(e, wanted.shape), wanted.values[e], its};
  }
  return std::nullopt;
}

}  // namespace

int field_bits(DType dtype) { return dtype == DType::float32 ? 31 : 61; }

std::string field_name(int bits) { return fmt::format("GF(2^{}-1)", bits); }

// The definition is N/D and the form N'/D', another function: N D' - N' D is no zero polynomial, and of degree at most
// max(deg N + deg D', deg N' + deg D). At a point drawn uniformly it is 0 with a chance of at most that degree over p
// (Schwartz 1980, lemma 1; Zippel 1979), and independent draws multiply. A draw is taken only where neither D nor D' is
// 0 there, which it is with a chance of at most (deg D + deg D') / p (the same lemma), so the chance given that it is
// taken is larger by no more than 1 / (1 - that). One wrong element is enough to be seen, so the chance that none of a
// wrong form's is seen is at most that of one. Degrees count in inputs and cotangents together. The definition's are
// evaluated with it; the form's own cannot be read off its outputs, so that this assumes them to be at most
// assumed_factor times the definition's.
Certainty certainty_of(const oracle::Degrees& degrees, int bits) {
  const double p = std::ldexp(1.0, bits) - 1;
  const auto own = static_cast<double>(std::max<std::int64_t>({degrees.numerator, degrees.denominator, 1}));
  const double form = static_cast<double>(assumed_factor) * own;
  const double in_one = (own + form) / (p - static_cast<double>(degrees.denominator) - form);
  if (!(in_one > 0 && in_one < 0.5))
    throw std::runtime_error(fmt::format("a definition of degree {} is too much for {}", own, field_name(bits)));
  Certainty certainty{.draws = 1, .escape = in_one};
  for (; certainty.escape > most_escape; ++certainty.draws) certainty.escape *= in_one;
  return certainty;
}

FieldCall field_call(const Expectation& expectation, const Subject& subject, std::uint64_t draw) {
  const Case& c = expectation.of();
  const Contract& contract = *expectation.driver().contract;
  const Call floats = call_of(expectation, subject);
  FieldCall call{.kernel = c.kernel,
                 .form = subject.form,
                 .settings = floats.settings,
                 .bits = field_bits(c.dtype),
                 .scalars = floats.scalars,
                 .gradients = floats.gradients};
  Random random(c.seed * 0x9e3779b97f4a7c15u + draw);
  for (std::size_t i = 0; i < floats.inputs.size(); ++i) {
    const auto& array = floats.inputs[i];
    if (!array)
      call.inputs.emplace_back();
    else if (contract.inputs[i].dtype)
      call.inputs.push_back(Residues{array->name, array->shape, {array->values.begin(), array->values.end()}});
    else
      call.inputs.push_back(drawn(array->name, array->shape, call.bits, random));
  }
  for (const auto& array : floats.cotangents)
    call.cotangents.push_back(array ? std::optional(drawn(array->name, array->shape, call.bits, random))
                                    : std::nullopt);
  return call;
}

std::optional<Mismatch> first_mismatch(const oracle::FieldExpected& expected, const FieldAnswer& answer) {
  for (std::size_t i = 0; i < expected.outputs.size() + expected.gradients.size(); ++i)
    if (const Residues* wanted = wanted_of(expected, i))
      if (auto mismatch = mismatch_of(*wanted, got_of(answer, expected, i))) return mismatch;
  return std::nullopt;
}

bool same_tensor(const std::string& tensor, const oracle::FieldExpected& expected, const FieldAnswer& answer) {
  for (std::size_t i = 0; i < expected.outputs.size() + expected.gradients.size(); ++i)
    if (const Residues* wanted = wanted_of(expected, i); wanted != nullptr && wanted->name == tensor)
      return !mismatch_of(*wanted, got_of(answer, expected, i));
  return false;
}

void add_remarks(std::vector<Remark>& all, const std::vector<Remark>& more) {
  for (const Remark& remark : more) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Remark& known) {
      return known.kind == remark.kind && known.operation == remark.operation && known.place == remark.place &&
             known.detail == remark.detail;
    });
    if (found == all.end())
      all.push_back(remark);
    else
      found->count += remark.count;
  }
}

std::string text_of(const Remark& remark) {
  std::string text = remark.operation.empty() ? remark.kind : remark.operation;
  if (!remark.place.empty()) text += " at " + remark.place;
  if (!remark.detail.empty()) text += fmt::format(" ({})", remark.detail);
  return text;
}

}  // namespace fractus
