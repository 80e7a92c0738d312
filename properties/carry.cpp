// Property 5, carry: a sequence cut anywhere, each piece continuing from the state of the one before and passing the
// gradient of its own initial state back as the cotangent of that state, agrees with the definition of the whole.
// The pieces together are one more order of the same sums, so the bound of the whole holds for them as it stands.
#include <algorithm>
#include <numeric>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/slices.h"

namespace fractus {
namespace {

constexpr const char* self = "carry";

std::vector<std::vector<std::int64_t>> cuts(std::int64_t T, std::int64_t block) {
  std::vector<std::vector<std::int64_t>> list{{1, T - 1}, {T - 1, 1}, {0, T}, {T, 0}};
  if (T > block + 1)
    list.insert(
        list.end(),
        {{block, T - block}, {block - 1, T - block + 1}, {block + 1, T - block - 1}, {1, block - 1, T - block}});
  if (T <= 16) list.emplace_back(static_cast<std::size_t>(T), 1);  // token by token
  if (T >= 6) list.push_back({T / 3, 0, T / 3, T - 2 * (T / 3)});
  std::erase_if(list, [](const auto& pieces) { return *std::min_element(pieces.begin(), pieces.end()) < 0; });
  return list;
}

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  const std::int64_t block = settings.block;
  for (DType dtype : settings.dtypes) {
    std::size_t turn = 0;
    for (std::int64_t T : {std::int64_t{7}, block, block + 1, 2 * block + 1})
      for (const auto& pieces : cuts(T, block)) {
        Dims dims = driver.shapes(block)[turn % 7];
        dims[driver.sequence_symbol] = T;
        Case c = base_case(driver, self, dtype, dims, driver.smooth_fills[turn % 3]);
        c.pieces = pieces;
        if (turn % 3 != 2) c.cotangents = output_names(driver);
        if (turn % 4 == 3) c.absent = optional_inputs(driver);
        ++turn;
        cases.push_back(c);
      }
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  const auto fractions = rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1001));
  return rc::gen::map(rc::gen::pair(random_case(driver, settings, self, driver.smooth_fills, Backward::always),
                                    rc::gen::resize(4, fractions)),
                      [symbol = driver.sequence_symbol](const auto& draw) {
                        Case c = draw.first;
                        const std::int64_t T = c.dims.at(symbol);
                        std::vector<std::int64_t> borders{0, T};
                        for (int fraction : draw.second) borders.push_back(T * fraction / 1000);
                        std::sort(borders.begin(), borders.end());
                        for (std::size_t i = 1; i < borders.size(); ++i)
                          c.pieces.push_back(borders[i] - borders[i - 1]);
                        return c;
                      });
}

// What stays the same from piece to piece.
struct Sequence {
  const Driver& driver;
  Call whole;

  std::size_t dim_of(const TensorSpec& spec) const {
    const auto found = std::find(spec.dims.begin(), spec.dims.end(), driver.sequence_symbol);
    return static_cast<std::size_t>(found - spec.dims.begin());
  }
  bool runs_along(const TensorSpec& spec) const { return contains(driver.along_sequence, spec.name); }
  std::size_t input_index(const std::string& name) const {
    const auto& inputs = driver.contract->inputs;
    return static_cast<std::size_t>(
        std::find_if(inputs.begin(), inputs.end(), [&](const TensorSpec& s) { return s.name == name; }) -
        inputs.begin());
  }
  std::size_t output_index(const std::string& name) const {
    const auto& outputs = driver.contract->outputs;
    return static_cast<std::size_t>(
        std::find_if(outputs.begin(), outputs.end(), [&](const TensorSpec& s) { return s.name == name; }) -
        outputs.begin());
  }
};

// The call for [start, start + length), with `state` (empty for the first piece) in place of the initial one.
Call piece_call(const Sequence& sequence, std::int64_t start, std::int64_t length, const std::vector<Array>& state) {
  Call call = sequence.whole;
  const auto& contract = *sequence.driver.contract;
  for (std::size_t i = 0; i < contract.inputs.size(); ++i)
    if (call.inputs[i] && sequence.runs_along(contract.inputs[i]))
      call.inputs[i] = slice(*call.inputs[i], sequence.dim_of(contract.inputs[i]), start, length);
  for (std::size_t j = 0; j < contract.outputs.size(); ++j)
    if (call.cotangents[j] && sequence.runs_along(contract.outputs[j]))
      call.cotangents[j] = slice(*call.cotangents[j], sequence.dim_of(contract.outputs[j]), start, length);
  if (state.empty()) return call;
  for (const auto& [output, input] : sequence.driver.carry) {
    Array value = state[sequence.output_index(output)];
    value.name = input;
    call.inputs[sequence.input_index(input)] = std::move(value);
  }
  return call;
}

// An empty piece copies its state, and may do so detached (KERNELS.md): what flows into the copy flows through.
void flow_through(const Sequence& sequence, const Call& call, Answer& answer) {
  if (!call.inputs.front()->values.empty()) return;
  for (const auto& [output, input] : sequence.driver.carry) {
    const std::size_t i = sequence.input_index(input), j = sequence.output_index(output);
    if (!call.gradients[i] || answer.gradients[i] || !call.cotangents[j]) continue;
    answer.gradients[i] = call.cotangents[j];
    answer.gradients[i]->name = "d" + input;
  }
}

// The gradients of a piece's initial state become the cotangents of the state that the piece before it ended with.
void pass_back(const Sequence& sequence, const Answer& answer, Call& earlier) {
  for (const auto& [output, input] : sequence.driver.carry) {
    std::optional<Array> gradient = answer.gradients[sequence.input_index(input)];
    if (gradient) gradient->name = output;
    earlier.cotangents[sequence.output_index(output)] = std::move(gradient);
  }
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const Sequence sequence{expectation.driver(), call_of(expectation, subject)};
  const Contract& contract = *sequence.driver.contract;
  const Case& c = expectation.of();
  const std::int64_t T = c.dims.at(sequence.driver.sequence_symbol);
  if (c.pieces.empty() || std::accumulate(c.pieces.begin(), c.pieces.end(), std::int64_t{0}) != T)
    throw std::invalid_argument("pieces: wanted lengths that sum to " + std::to_string(T));
  const bool backward = !c.cotangents.empty();

  std::vector<Call> calls;
  std::vector<Answer> answers(c.pieces.size());
  std::vector<Array> state;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < c.pieces.size(); ++i) {
    calls.push_back(piece_call(sequence, start, c.pieces[i], state));
    start += c.pieces[i];
    Call forward = calls.back();
    std::fill(forward.cotangents.begin(), forward.cotangents.end(), std::nullopt);
    answers[i] = subject.call(forward);
    if (auto finding = trouble(answers[i])) return {.finding = std::move(finding)};
    state = answers[i].outputs;
  }

  if (backward)
    for (std::size_t i = calls.size(); i-- > 0;) {
      if (i + 1 < calls.size()) pass_back(sequence, answers[i + 1], calls[i]);
      if (i > 0)
        for (const auto& [output, input] : sequence.driver.carry)
          calls[i].gradients[sequence.input_index(input)] = true;
      answers[i] = subject.call(calls[i]);
      if (auto finding = trouble(answers[i])) return {.finding = std::move(finding)};
      answers[i].gradients.resize(contract.inputs.size());
      flow_through(sequence, calls[i], answers[i]);
    }

  Answer whole = answers.back();
  whole.gradients = answers.front().gradients;  // those of the initial state; the others are joined below
  const auto join = [&](const TensorSpec& spec, const auto& part_of) -> std::optional<Array> {
    std::vector<Array> parts;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const std::optional<Array> part = part_of(answers[i]);
      if (part)
        parts.push_back(*part);
      else if (c.pieces[i] > 0)
        return std::nullopt;
    }
    return parts.empty() ? std::nullopt : std::optional<Array>(joined(parts, sequence.dim_of(spec)));
  };
  for (std::size_t j = 0; j < contract.outputs.size(); ++j)
    if (sequence.runs_along(contract.outputs[j]))
      whole.outputs[j] =
          *join(contract.outputs[j], [j](const Answer& a) { return std::optional<Array>(a.outputs[j]); });
  for (std::size_t i = 0; i < whole.gradients.size(); ++i)
    if (sequence.runs_along(contract.inputs[i]))
      whole.gradients[i] = join(contract.inputs[i], [i](const Answer& a) { return a.gradients[i]; });
  return compare(expectation, whole);
}

}  // namespace

Property carry_property() {
  return {.name = self,
          .proves =
              "every split of a sequence agrees with the whole, states and their gradients passed from piece to piece",
          .applies = [](const Driver& driver) { return !driver.carry.empty(); },
          .plan = plan,
          .random = random,
          .check = check};
}

}  // namespace fractus
