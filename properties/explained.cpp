#include "properties/explained.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/cases.h"

namespace fractus {
namespace {

// The last two extents change places.
Residues transposed(const Residues& x) {
  Residues result = x;
  const auto n = static_cast<std::size_t>(x.shape.back());
  for (std::size_t first = 0; first < x.values.size(); first += n * n)
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t c = 0; c < n; ++c) result.values[first + r * n + c] = x.values[first + c * n + r];
  return result;
}

bool is_square(const TensorSpec& spec) {
  const std::size_t rank = spec.dims.size();
  return rank >= 2 && spec.dims[rank - 1] == spec.dims[rank - 2];
}

// Each is in words that follow "as if".
std::vector<Supposition> suppositions_of(const Driver& driver, const FieldCall& call) {
  const Contract& contract = *driver.contract;
  std::vector<Supposition> list = driver.suppositions;
  const auto with = [&](std::string text, auto change) {
    list.push_back({std::move(text), [&driver, change](FieldCall its) {
                      change(its);
                      return driver.over_field(its);
                    }});
  };
  std::vector<std::size_t> optional;
  for (std::size_t i = 0; i < contract.inputs.size(); ++i) {
    const TensorSpec& spec = contract.inputs[i];
    if (!call.inputs[i]) continue;
    if (spec.optional) {
      optional.push_back(i);
      with(spec.name + " were absent", [i](FieldCall& its) { its.inputs[i].reset(); });
    }
    if (is_square(spec))
      with(spec.name + " were transposed", [i](FieldCall& its) { its.inputs[i] = transposed(*its.inputs[i]); });
  }
  if (optional.size() > 1)
    with("no optional input were given", [optional](FieldCall& its) {
      for (const std::size_t i : optional) its.inputs[i].reset();
    });
  for (std::size_t j = 0; j < contract.outputs.size(); ++j)
    if (call.cotangents[j])
      with(fmt::format("nothing flowed back into {}", contract.outputs[j].name), [j](FieldCall& its) {
        // Zeros, so that there is a backward where it is the only cotangent.
        std::fill(its.cotangents[j]->values.begin(), its.cotangents[j]->values.end(), 0);
      });
  for (std::size_t j = 0; j < contract.outputs.size(); ++j)
    if (is_square(contract.outputs[j]))
      list.push_back({"the result were transposed", [&driver, j](const FieldCall& its) {
                        oracle::FieldExpected expected = driver.over_field(its);
                        expected.outputs[j] = transposed(expected.outputs[j]);
                        return expected;
                      }});
  return list;
}

}  // namespace

std::string explained(const Driver& driver, const std::string& tensor, const std::vector<Trial>& trials) {
  if (trials.empty()) return "";
  const auto holds = [&](const Supposition& supposition, const Trial& trial) {
    try {
      return same_tensor(tensor, supposition.over_field(trial.call), trial.answer);
    } catch (const std::domain_error&) {  // a pole of what is supposed
      return false;
    }
  };
  for (const Supposition& supposition : suppositions_of(driver, trials.front().call))
    if (std::all_of(trials.begin(), trials.end(), [&](const Trial& trial) { return holds(supposition, trial); }))
      return "as if " + supposition.text;
  return "";
}

std::vector<std::string> witness_fills(const Driver& driver) {
  std::vector<std::string> fills = driver.smooth_fills;
  for (const std::string& fill : driver.fills)
    if (!contains(fills, fill) && fill != driver.exact_fill) fills.push_back(fill);
  return fills;
}

std::optional<std::pair<Case, Outcome>> float_witness(Expectation& expectation, const Subject& subject,
                                                      const std::vector<std::string>& fills) {
  const Driver& driver = expectation.driver();
  Case c = expectation.of();
  if (!subject.call || !driver.expected) return std::nullopt;
  // The property carry knows inputs that run along the sequence and those that carry on.
  const bool splits =
      std::all_of(driver.contract->inputs.begin(), driver.contract->inputs.end(), [&](const auto& spec) {
        return !spec.differentiable || contains(driver.along_sequence, spec.name) ||
               std::any_of(driver.carry.begin(), driver.carry.end(),
                           [&](const auto& pair) { return pair.second == spec.name; });
      });
  if (!splits) c.pieces.clear();
  if (!c.pieces.empty()) {
    c.property = "carry";
    c.variant = "detached";
  } else {
    c.property = c.cotangents.empty() ? "rounding" : "gradients";
    c.variant = c.cotangents.empty() ? "" : "leaves";
  }
  const Property& property = *find_property(c.property);
  for (const std::string& fill : fills) {
    c.fill = fill;
    Expectation its(driver, c, expectation.threads());
    Outcome outcome = property.check(its, subject);
    // A crash is no other number, and what the contract lets pass is no fault: both are for other properties.
    if (outcome.finding && !outcome.finding->broken && outcome.finding->waiver.empty())
      return std::pair(c, std::move(outcome));
  }
  return std::nullopt;
}

}  // namespace fractus
