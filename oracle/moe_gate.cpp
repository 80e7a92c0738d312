#include "oracle/moe_gate.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include "oracle/companion_expected.h"
#include "oracle/moe_gate_expected.h"
#include "oracle/parallel.h"

namespace fractus::oracle::moe_gate {
namespace {

enum Output : std::size_t { gates_at, index_at, weights_at, balance_at };

struct Extents {
  std::size_t tokens, P, E, top_k;
};

Extents extents_of(const Question& question) {
  if (question.inputs.size() < 2 || !question.inputs[0] || !question.inputs[1])
    throw std::invalid_argument("moe_gate: phases and expert_phases are both needed");
  const Array &phases = *question.inputs[0], &mu = *question.inputs[1];
  if (phases.shape.size() != 3 || mu.shape.size() != 1 || phases.values.empty() || mu.values.empty())
    throw std::invalid_argument("moe_gate: shapes " + to_string(phases.shape) + " and " + to_string(mu.shape));
  const auto extent = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  if (question.top_k < 1 || question.top_k > extent(mu.shape[0]))
    throw std::invalid_argument("moe_gate: top_k " + std::to_string(question.top_k) + " of " + to_string(mu.shape));
  return {extent(phases.shape[0] * phases.shape[1]), extent(phases.shape[2]), extent(mu.shape[0]), question.top_k};
}

const Array* cotangent(const Question& question, Output output) {
  return output < question.cotangents.size() && question.cotangents[output] ? &*question.cotangents[output] : nullptr;
}

// The form's own output, of `count` elements; nullptr where it has none.
const double* answered(const Question& question, Output output, std::size_t count) {
  if (question.answered == nullptr || output >= question.answered->size()) return nullptr;
  const std::vector<double>& values = (*question.answered)[output].values;
  return values.size() == count ? values.data() : nullptr;
}

// Token by token: what all stages need to know of it.
template <DType judged>
struct Token {
  bool theta_known = false;  // the resultant is certainly not 0
  Branch taken = Branch::divide;
  bool choice_open = false;  // more than one selection or branch is right, and no answer has settled it
  std::vector<std::size_t> chosen;
  std::vector<Companion<judged>> gates;
};

// Numbers of one token in R: leaves of a tape, or what they are themselves.
template <class R>
std::vector<R> numbers(const double* values, std::size_t count) {
  std::vector<R> result;
  for (std::size_t i = 0; i < count; ++i) result.emplace_back(values[i]);
  return result;
}

template <class R>
R steepness(const Question& question) {
  return steepness_of<R>(question.kappa, question.temperature);
}

// Which way a sum in doubt went, by the form's own gates: equal shares, unless what the sum divides would look the
// same; its adjoint then has room for both.
template <DType judged>
Branch settled(const std::vector<Companion<judged>>& divided, const double* got) {
  const auto fit = [&](const std::vector<Companion<judged>>& gates) {
    for (std::size_t e = 0; e < gates.size(); ++e)
      if (!(magnitude(static_cast<double>(gates[e].v) - got[e]) <= error(gates[e]) * (1 + base_slack))) return false;
    return true;
  };
  return fit(divided) || !fit(equal_shares<Companion<judged>>(divided.size())) ? Branch::divide : Branch::cut;
}

// The form's selection in its own order, where it is right.
std::optional<std::vector<std::size_t>> selected(const Selections& right, const double* got, std::size_t top_k) {
  if (got == nullptr) return std::nullopt;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < top_k; ++i) {
    if (!(got[i] >= 0 && got[i] < static_cast<double>(right.must_in.size())) || got[i] != std::floor(got[i]))
      return std::nullopt;
    chosen.push_back(static_cast<std::size_t>(got[i]));
  }
  return right.admit(chosen) ? std::optional(chosen) : std::nullopt;
}

template <DType judged>
struct Evaluation {
  using R = Companion<judged>;

  const Question& question;
  const Extents at;
  std::vector<Token<judged>> tokens;
  Expected result;
  std::atomic<std::size_t> in_doubt{0};

  explicit Evaluation(const Question& asked) : question(asked), at(extents_of(asked)), tokens(at.tokens) {
    const Shape& phases = question.inputs[0]->shape;
    const Shape gates{phases[0], phases[1], static_cast<std::int64_t>(at.E)};
    const Shape chosen{phases[0], phases[1], static_cast<std::int64_t>(at.top_k)};
    result.dtype = judged;
    result.radius_per_tolerance = base_radius<judged>;
    result.outputs = {blank<judged>("gates", gates), blank<judged>("topk_idx", chosen),
                      blank<judged>("topk_weights", chosen), blank<judged>("lb", {})};
  }

  const double* phases(std::size_t t) const { return question.inputs[0]->values.data() + t * at.P; }
  const double* experts() const { return question.inputs[1]->values.data(); }

  // Outputs of one token.
  void forward(std::size_t t) {
    Token<judged>& token = tokens[t];
    const R theta = mean_angle(numbers<R>(phases(t), at.P));
    token.theta_known = theta.e < unbounded;
    const std::vector<R> l = exponents(theta, numbers<R>(experts(), at.E), steepness<R>(question));
    const std::vector<R> g = exponentials(l);
    const R sum = sum_of(g);
    token.taken = branch(sum, cut_exponent);
    const bool cut_in_doubt = token.taken == Branch::either;
    if (const double* got = answered(question, gates_at, at.tokens * at.E); cut_in_doubt && got != nullptr)
      token.taken = settled(shares(g, sum), got + t * at.E);

    const Selections right = selections(l, at.top_k, token.taken);
    const double* got = answered(question, index_at, at.tokens * at.top_k);
    const auto theirs = selected(right, got == nullptr ? nullptr : got + t * at.top_k, at.top_k);
    token.chosen = theirs ? *theirs : right.own;
    token.choice_open = token.taken == Branch::either || (right.in_doubt && got == nullptr);
    if (right.in_doubt || cut_in_doubt) ++in_doubt;
    token.gates = gates(g, sum, token.taken);
    store(token, weights(g, token.chosen, token.taken), t);
  }

  void store(Token<judged>& token, const std::vector<R>& weights, std::size_t t) {
    const bool open = !token.theta_known || token.taken == Branch::either;
    for (std::size_t e = 0; e < at.E; ++e) {
      put(token.gates[e], result.outputs[gates_at], t * at.E + e);
      if (!open) continue;
      put_undecidable(result.outputs[gates_at], t * at.E + e);
      // Whatever theta and the branch are, a gate lies in [0, 1]: so much bounds what lb sends back to other tokens.
      token.gates[e] = {0.5, 0.5, 1, 0.5 * (1 + base_slack), 1};
    }
    for (std::size_t k = 0; k < at.top_k; ++k) {
      const std::size_t i = t * at.top_k + k;
      put(weights[k], result.outputs[weights_at], i);
      result.outputs[index_at].value[i] = static_cast<double>(token.chosen[k]);
      if (token.choice_open) put_undecidable(result.outputs[index_at], i);
      if (open || token.choice_open) put_undecidable(result.outputs[weights_at], i);
    }
  }

  // lb, and by expert what its cotangent sends back to the gate of every token.
  std::vector<R> balance() {
    const Array* g = cotangent(question, balance_at);
    Balanced<judged> of = balanced(tokens, R(g == nullptr ? 0 : g->values.at(0)));
    put(of.lb, result.outputs[balance_at], 0);
    const auto open = [](const Token<judged>& token) { return !token.theta_known || token.taken == Branch::either; };
    if (std::any_of(tokens.begin(), tokens.end(), open)) put_undecidable(result.outputs[balance_at], 0);
    return std::move(of.of_gates);
  }

  // The gradient of one token's phases.
  void backward(std::size_t t, const std::vector<R>& from_balance) {
    ExpectedTensor& gradient = *result.gradients[0];
    const Token<judged>& token = tokens[t];
    if (!token.theta_known || token.taken == Branch::either || (token.choice_open && cotangent(question, weights_at))) {
      for (std::size_t p = 0; p < at.P; ++p) {
        // Behind an angle of nothing there is no derivative: a NaN says as much as any number.
        if (!token.theta_known) gradient.value[t * at.P + p] = std::numeric_limits<double>::quiet_NaN();
        put_undecidable(gradient, t * at.P + p);
      }
      return;
    }
    using N = Taped<R>;
    Tape<R> tape;
    N::tape = &tape;
    std::vector<N> leaves;
    for (const R& phase : numbers<R>(phases(t), at.P)) leaves.push_back(N::leaf(phase));
    const std::vector<N> l = exponents(mean_angle(leaves), numbers<N>(experts(), at.E), steepness<N>(question));
    const std::vector<N> g = exponentials(l);
    const N sum = sum_of(g);
    const std::vector<N> gate = gates(g, sum, token.taken), weight = weights(g, token.chosen, token.taken);

    std::vector<R> seeds(tape.size());
    const auto seed = [&](const N& number, const R& cotangent) {
      if (number.node != Tape<R>::constant) seeds[number.node] = seeds[number.node] + cotangent;
    };
    for (std::size_t e = 0; e < at.E; ++e) {
      if (const Array* c = cotangent(question, gates_at)) seed(gate[e], R(c->values[t * at.E + e]));
      if (cotangent(question, balance_at)) seed(gate[e], from_balance[e]);
    }
    if (const Array* c = cotangent(question, weights_at))
      for (std::size_t k = 0; k < at.top_k; ++k) seed(weight[k], R(c->values[t * at.top_k + k]));
    const std::vector<R> pulled = tape.pull_back(std::move(seeds));
    for (std::size_t p = 0; p < at.P; ++p) put(pulled[leaves[p].node], gradient, t * at.P + p);
    N::tape = nullptr;
  }
};

template <DType judged>
Expected expected_in(const Question& question) {
  Evaluation<judged> all(question);
  for_each(all.at.tokens, question.threads, [&](std::size_t t) { all.forward(t); });
  const auto from_balance = all.balance();
  if (cotangent(question, gates_at) || cotangent(question, weights_at) || cotangent(question, balance_at)) {
    all.result.gradients = {blank<judged>("dphases", question.inputs[0]->shape), std::nullopt};
    for_each(all.at.tokens, question.threads, [&](std::size_t t) { all.backward(t, from_balance); });
  }
  all.result.choices_in_doubt = all.in_doubt;
  return std::move(all.result);
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? expected_in<DType::float32>(question)
                                          : expected_in<DType::float64>(question);
}

}  // namespace fractus::oracle::moe_gate
