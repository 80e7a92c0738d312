#include "properties/split_over_field.h"

#include <algorithm>

#include "properties/cases.h"
#include "properties/over_field.h"
#include "properties/slices.h"

namespace fractus {
namespace {

struct Sequence {
  const Driver& driver;
  const FieldCall& whole;

  bool runs_along(const TensorSpec& spec) const { return contains(driver.along_sequence, spec.name); }
  bool is_state(const TensorSpec& spec) const {
    return std::any_of(driver.carry.begin(), driver.carry.end(),
                       [&](const auto& pair) { return pair.second == spec.name; });
  }
  std::size_t dim_of(const TensorSpec& spec) const {
    const auto found = std::find(spec.dims.begin(), spec.dims.end(), driver.sequence_symbol);
    return static_cast<std::size_t>(found - spec.dims.begin());
  }
  std::size_t input(const std::string& name) const { return position(driver.contract->inputs, name); }
  std::size_t output(const std::string& name) const { return position(driver.contract->outputs, name); }
};

FieldCall piece_of(const Sequence& sequence, std::int64_t start, std::int64_t length,
                   const std::vector<Residues>& state) {
  FieldCall call = sequence.whole;
  const Contract& contract = *sequence.driver.contract;
  const auto cut = [&](const TensorSpec& spec, std::optional<Residues>& tensor) {
    if (tensor && sequence.runs_along(spec)) tensor = slice(*tensor, sequence.dim_of(spec), start, length);
  };
  for (std::size_t i = 0; i < contract.inputs.size(); ++i) cut(contract.inputs[i], call.inputs[i]);
  for (std::size_t j = 0; j < contract.outputs.size(); ++j) cut(contract.outputs[j], call.cotangents[j]);
  if (state.empty()) return call;
  for (const auto& [output, input] : sequence.driver.carry) {
    Residues value = state[sequence.output(output)];
    value.name = input;
    call.inputs[sequence.input(input)] = std::move(value);
  }
  return call;
}

// Of a tensor that all pieces share.
void add(const std::optional<Residues>& more, int bits, std::optional<Residues>& sum) {
  if (!more) return;
  if (!sum) {
    sum = more;
    return;
  }
  const std::uint64_t p = (std::uint64_t{1} << bits) - 1;
  for (std::size_t e = 0; e < sum->values.size(); ++e) sum->values[e] = (sum->values[e] + more->values[e]) % p;
}

FieldAnswer joined_answer(const Sequence& sequence, std::vector<FieldAnswer> answers) {
  const Contract& contract = *sequence.driver.contract;
  FieldAnswer whole = answers.back();
  whole.gradients = answers.front().gradients;  // those of the initial state; others are joined or added up below
  for (std::size_t j = 0; j < contract.outputs.size(); ++j) {
    if (!sequence.runs_along(contract.outputs[j])) continue;
    std::vector<Residues> parts;
    for (const FieldAnswer& answer : answers) parts.push_back(answer.outputs[j]);
    whole.outputs[j] = joined(parts, sequence.dim_of(contract.outputs[j]));
  }
  for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
    if (!sequence.runs_along(contract.inputs[i])) {
      for (std::size_t a = 1; a < answers.size() && !sequence.is_state(contract.inputs[i]); ++a)
        add(answers[a].gradients[i], sequence.whole.bits, whole.gradients[i]);
      continue;
    }
    // A gradient that did not arrive is one of zeros, also where those of other pieces did.
    const auto there = std::find_if(answers.begin(), answers.end(),
                                    [i](const FieldAnswer& answer) { return answer.gradients[i].has_value(); });
    if (there == answers.end()) continue;
    std::vector<Residues> parts;
    for (std::size_t a = 0; a < answers.size(); ++a) {
      Residues part = answers[a].gradients[i].value_or(Residues{});
      if (!answers[a].gradients[i]) {
        part.shape = (*there->gradients[i]).shape;
        part.shape[sequence.dim_of(contract.inputs[i])] =
            answers[a].outputs.front().shape.at(sequence.dim_of(contract.outputs.front()));
        part.values.assign(static_cast<std::size_t>(element_count(part.shape)), 0);
      }
      parts.push_back(std::move(part));
    }
    whole.gradients[i] = joined(parts, sequence.dim_of(contract.inputs[i]));
  }
  return whole;
}

}  // namespace

FieldAnswer call_in_pieces(const Driver& driver, const FieldCall& whole, const std::vector<std::int64_t>& pieces,
                           const Subject& subject) {
  const Sequence sequence{driver, whole};
  const bool backward = std::any_of(whole.cotangents.begin(), whole.cotangents.end(),
                                    [](const auto& cotangent) { return cotangent.has_value(); });
  std::vector<FieldCall> calls;
  std::vector<FieldAnswer> answers;
  std::vector<Remark> remarks;
  std::vector<Residues> state;
  std::int64_t start = 0;
  for (const std::int64_t length : pieces) {
    calls.push_back(piece_of(sequence, start, length, state));
    start += length;
    FieldCall forward = calls.back();
    std::fill(forward.cotangents.begin(), forward.cotangents.end(), std::nullopt);
    std::fill(forward.gradients.begin(), forward.gradients.end(), false);
    answers.push_back(subject.call_over_field(forward));
    add_remarks(remarks, answers.back().remarks);
    if (answers.back().status != FieldStatus::ok) return answers.back();
    state = answers.back().outputs;
  }
  for (std::size_t i = backward ? calls.size() : 0; i-- > 0;) {
    if (i + 1 < calls.size())
      for (const auto& [output, input] : driver.carry) {
        auto& cotangent = calls[i].cotangents[sequence.output(output)];
        const auto& gradients = answers[i + 1].gradients;
        cotangent = sequence.input(input) < gradients.size() ? gradients[sequence.input(input)] : std::nullopt;
        if (cotangent) cotangent->name = output;
      }
    if (i > 0)
      for (const auto& [output, input] : driver.carry) calls[i].gradients[sequence.input(input)] = true;
    answers[i] = subject.call_over_field(calls[i]);
    add_remarks(remarks, answers[i].remarks);
    if (answers[i].status != FieldStatus::ok) return answers[i];
  }
  for (FieldAnswer& answer : answers) answer.gradients.resize(whole.inputs.size());
  FieldAnswer answer = joined_answer(sequence, std::move(answers));
  answer.remarks = std::move(remarks);
  return answer;
}

}  // namespace fractus
