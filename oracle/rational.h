// A definition that is a rational function, over numbers without rounding: one call's tensors as numbers of any type,
// and what comes back. A definition is a generic function of a Point<R> that gives Values<R>; it serves for both
// fields, for degrees and, by the tape, for gradients and for certified bounds over floats.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contracts/field_call.h"
#include "oracle/degree.h"
#include "oracle/field.h"
#include "oracle/tape.h"

namespace fractus::oracle {

template <class R>
struct Tensor {
  Shape shape;
  std::vector<R> values;
};

template <class R>
struct Point {
  std::vector<std::optional<Tensor<R>>> inputs, cotangents;  // in the contract's order
  std::vector<std::optional<Tensor<std::int64_t>>> whole;    // by input: those of whole numbers
  std::vector<bool> gradients;                               // by input: is its gradient wanted

  bool backward() const {
    for (const auto& cotangent : cotangents)
      if (cotangent) return true;
    return false;
  }
};

template <class R>
struct Values {
  std::vector<Tensor<R>> outputs;
  std::vector<std::optional<Tensor<R>>> gradients;  // by input; empty without cotangents
};

// What a definition says of a call over a field, in the words of the answer to it.
struct FieldExpected {
  std::vector<Residues> outputs;
  std::vector<std::optional<Residues>> gradients;
};

// The largest degrees of any element: of numerators and of denominators.
struct Degrees {
  std::int64_t numerator = 0, denominator = 0;
};

namespace rational {

template <class R, class Leaf>
Point<R> point_of(const FieldCall& call, const Leaf& leaf) {
  const Contract& contract = *find_contract(call.kernel);
  Point<R> point;
  const auto taken = [&](const std::optional<Residues>& from) -> std::optional<Tensor<R>> {
    if (!from) return std::nullopt;
    Tensor<R> tensor{from->shape, {}};
    tensor.values.reserve(from->values.size());
    for (const std::uint64_t x : from->values) tensor.values.push_back(leaf(x));
    return tensor;
  };
  point.whole.resize(call.inputs.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const bool whole = contract.inputs[i].dtype.has_value();
    point.inputs.push_back(whole ? std::nullopt : taken(call.inputs[i]));
    if (whole && call.inputs[i])
      point.whole[i] =
          Tensor<std::int64_t>{call.inputs[i]->shape, {call.inputs[i]->values.begin(), call.inputs[i]->values.end()}};
  }
  for (const auto& cotangent : call.cotangents) point.cotangents.push_back(taken(cotangent));
  point.gradients = call.gradients;
  return point;
}

template <int bits, class Definition>
FieldExpected in_field(const Definition& definition, const FieldCall& call) {
  using R = PrimeField<bits>;
  const Contract& contract = *find_contract(call.kernel);
  const Values<R> values =
      definition(point_of<R>(call, [](std::uint64_t x) { return R(static_cast<std::int64_t>(x)); }));
  const auto residues = [](const std::string& name, const Tensor<R>& tensor) {
    Residues result{name, tensor.shape, {}};
    result.values.reserve(tensor.values.size());
    for (const R& x : tensor.values) result.values.push_back(x.residue());
    return result;
  };
  FieldExpected expected;
  for (std::size_t j = 0; j < values.outputs.size(); ++j)
    expected.outputs.push_back(residues(contract.outputs[j].name, values.outputs[j]));
  expected.gradients.resize(call.inputs.size());
  for (std::size_t i = 0; i < values.gradients.size(); ++i)
    if (values.gradients[i] && call.gradients[i])
      expected.gradients[i] = residues("d" + contract.inputs[i].name, *values.gradients[i]);
  return expected;
}

}  // namespace rational

// The definition over the call's field. Throws std::domain_error where the point is a pole: draw again.
template <class Definition>
FieldExpected over_field(const Definition& definition, const FieldCall& call) {
  return call.bits == 31 ? rational::in_field<31>(definition, call) : rational::in_field<61>(definition, call);
}

// Of the definition at the call's shapes, in its inputs and cotangents together.
template <class Definition>
Degrees degrees(const Definition& definition, const FieldCall& call) {
  const Degree::Ledger ledger;
  const Values<Degree> values =
      definition(rational::point_of<Degree>(call, [](std::uint64_t) { return Degree::variable(); }));
  Degrees most;
  const auto take = [&](const Tensor<Degree>& tensor) {
    for (const Degree& x : tensor.values) {
      most.numerator = std::max(most.numerator, x.numerator());
      most.denominator = std::max(most.denominator, x.denominator());
    }
  };
  for (const Tensor<Degree>& output : values.outputs) take(output);
  for (const auto& gradient : values.gradients)
    if (gradient) take(*gradient);
  return most;
}

// Outputs by `outputs_of`, a generic function of a Point<R>, and the gradients of all inputs by the tape.
template <class Outputs, class R>
Values<R> by_tape(const Outputs& outputs_of, const Point<R>& point) {
  if (!point.backward()) return {outputs_of(point), {}};
  Tape<R> tape;
  Tape<R>* const before = std::exchange(Taped<R>::tape, &tape);
  Point<Taped<R>> taped{.inputs = {}, .cotangents = {}, .whole = point.whole, .gradients = point.gradients};
  for (const auto& input : point.inputs) {
    taped.inputs.emplace_back();
    if (!input) continue;
    taped.inputs.back() = Tensor<Taped<R>>{input->shape, {}};
    for (const R& x : input->values) taped.inputs.back()->values.push_back(Taped<R>::leaf(x));
  }
  const std::vector<Tensor<Taped<R>>> outputs = outputs_of(taped);
  Taped<R>::tape = before;

  Values<R> values;
  std::vector<R> seeds(tape.size(), R(0));
  for (std::size_t j = 0; j < outputs.size(); ++j) {
    values.outputs.push_back({outputs[j].shape, {}});
    for (std::size_t e = 0; e < outputs[j].values.size(); ++e) {
      const Taped<R>& x = outputs[j].values[e];
      values.outputs.back().values.push_back(x.value);
      if (j < point.cotangents.size() && point.cotangents[j] && x.node != Tape<R>::constant)
        seeds[x.node] = seeds[x.node] + point.cotangents[j]->values[e];
    }
  }
  const std::vector<R> pulled = tape.pull_back(std::move(seeds));
  for (const auto& input : taped.inputs) {
    values.gradients.emplace_back();
    if (!input) continue;
    values.gradients.back() = Tensor<R>{input->shape, {}};
    for (const Taped<R>& x : input->values) values.gradients.back()->values.push_back(pulled[x.node]);
  }
  return values;
}

}  // namespace fractus::oracle
