// Property 5, carry: a sequence cut anywhere, each piece continuing from the state of the one before, agrees with the
// definition of the whole. Variant "detached": the gradient of a piece's initial state is handed back as the cotangent
// of the state before. Variant "graph": the pieces are one graph with one backward. The pieces together are one more
// order of the same sums, so the bound of the whole holds for them as it stands.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/slices.h"

namespace fractus {
namespace {

constexpr const char* self = "carry";
constexpr std::size_t most_chained = 24;  // calls in one request

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

// An empty piece may hand its state on detached (KERNELS.md), which ends the graph: here there are none. A graph wants
// gradients.
Case as_graph(Case c) {
  c.variant = "graph";
  std::erase(c.pieces, 0);
  while (c.pieces.size() > most_chained) {
    c.pieces[c.pieces.size() - 2] += c.pieces.back();
    c.pieces.pop_back();
  }
  return c;
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
        c.variant = "detached";
        cases.push_back(c);
        if (const Case chained = as_graph(c); turn % 2 == 0 && chained.pieces.size() > 1) cases.push_back(chained);
        ++turn;
      }
    for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{2, 3}, {1, 1, 3}, {0, 4, 1}}) {
      Case c = base_case(driver, self, dtype, driver.live_slice, driver.smooth_fills[turn++ % 3]);
      c.pieces = pieces;
      c.cotangents = output_names(driver);
      c.variant = "detached";
      cases.push_back(c);
      cases.push_back(as_graph(c));
    }
  }
  return cases;
}

rc::Gen<Case> random(const Driver& driver, const PlanSettings& settings) {
  const auto fractions = rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1001));
  return rc::gen::map(rc::gen::tuple(random_case(driver, settings, self, driver.smooth_fills, Backward::always),
                                     rc::gen::resize(4, fractions), rc::gen::arbitrary<bool>()),
                      [symbol = driver.sequence_symbol](const auto& draw) {
                        Case c = std::get<0>(draw);
                        c.variant = "detached";
                        const std::int64_t T = c.dims.at(symbol);
                        std::vector<std::int64_t> borders{0, T};
                        for (int fraction : std::get<1>(draw)) borders.push_back(T * fraction / 1000);
                        std::sort(borders.begin(), borders.end());
                        for (std::size_t i = 1; i < borders.size(); ++i)
                          c.pieces.push_back(borders[i] - borders[i - 1]);
                        return std::get<2>(draw) ? as_graph(c) : c;
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
  std::size_t input_index(const std::string& name) const { return position(driver.contract->inputs, name); }
  std::size_t output_index(const std::string& name) const { return position(driver.contract->outputs, name); }
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

// Every piece by itself, forward and then, from the last to the first, again with its backward. Empty where all is
// well.
std::optional<Finding> run_detached(const Sequence& sequence, const std::vector<std::int64_t>& pieces, bool backward,
                                    const Subject& subject, std::vector<Answer>& answers) {
  std::vector<Call> calls;
  std::vector<Array> state;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    calls.push_back(piece_call(sequence, start, pieces[i], state));
    start += pieces[i];
    Call forward = calls.back();
    std::fill(forward.cotangents.begin(), forward.cotangents.end(), std::nullopt);
    answers[i] = subject.call(forward);
    if (auto finding = trouble(answers[i])) return finding;
    state = answers[i].outputs;
  }
  for (std::size_t i = backward ? calls.size() : 0; i-- > 0;) {
    if (i + 1 < calls.size()) pass_back(sequence, answers[i + 1], calls[i]);
    if (i > 0)
      for (const auto& [output, input] : sequence.driver.carry) calls[i].gradients[sequence.input_index(input)] = true;
    answers[i] = subject.call(calls[i]);
    if (auto finding = trouble(answers[i])) return finding;
    answers[i].gradients.resize(sequence.driver.contract->inputs.size());
    flow_through(sequence, calls[i], answers[i]);
  }
  return std::nullopt;
}

// All pieces as one graph: each takes the state of the one before as it is, and one backward runs through them all.
std::optional<Finding> run_graph(const Sequence& sequence, const std::vector<std::int64_t>& pieces, bool backward,
                                 const Subject& subject, std::vector<Answer>& answers) {
  std::vector<Call> calls;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Call call = piece_call(sequence, start, pieces[i], {});
    start += pieces[i];
    call.record_graph = backward;  // also where nothing but the state's gradient comes back
    for (const auto& [output, input] : sequence.driver.carry) {
      const std::size_t from = sequence.output_index(output), to = sequence.input_index(input);
      if (i + 1 < pieces.size()) call.cotangents[from].reset();  // the caller's cotangent is that of the final state
      if (i == 0) continue;
      call.inputs[to].reset();
      call.gradients[to] = false;
      call.continues.emplace_back(to, from);
    }
    calls.push_back(std::move(call));
  }
  answers = subject.call_together(calls, true);
  for (Answer& answer : answers) {
    if (auto finding = trouble(answer)) return finding;
    answer.gradients.resize(sequence.driver.contract->inputs.size());
  }
  return std::nullopt;
}

// The answer that the pieces' answers add up to.
Answer whole_of(const Sequence& sequence, const std::vector<std::int64_t>& pieces, const std::vector<Answer>& answers) {
  const Contract& contract = *sequence.driver.contract;
  Answer whole = answers.back();
  whole.gradients = answers.front().gradients;  // those of the initial state; the others are joined below
  const auto join = [&](const TensorSpec& spec, const auto& part_of) -> std::optional<Array> {
    std::vector<Array> parts;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const std::optional<Array> part = part_of(answers[i]);
      if (part)
        parts.push_back(*part);
      else if (pieces[i] > 0)
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
  return whole;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const Sequence sequence{expectation.driver(), call_of(expectation, subject)};
  const Case& c = expectation.of();
  const std::int64_t T = c.dims.at(sequence.driver.sequence_symbol);
  if (c.pieces.empty() || std::accumulate(c.pieces.begin(), c.pieces.end(), std::int64_t{0}) != T)
    throw std::invalid_argument("pieces: wanted lengths that sum to " + std::to_string(T));
  std::vector<Answer> answers(c.pieces.size());
  std::optional<Finding> finding;
  if (c.variant == "graph" && c.pieces.size() <= most_chained &&
      std::find(c.pieces.begin(), c.pieces.end(), 0) == c.pieces.end())
    finding = run_graph(sequence, c.pieces, !c.cotangents.empty(), subject, answers);
  else if (c.variant == "detached")
    finding = run_detached(sequence, c.pieces, !c.cotangents.empty(), subject, answers);
  else
    throw std::invalid_argument(fmt::format(
        "variant: wanted detached, or graph with at most {} pieces and none empty, got '{}'", most_chained, c.variant));
  if (finding) return {.finding = std::move(finding)};
  return compare(expectation, whole_of(sequence, c.pieces, answers));
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
