// The gate as its authors write it, in the judged type or in double inside, over a tape of that type: right forms that
// the bounds have to hold, and the faults of shared/mutants/moe_gate.py, which they have to refuse.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "oracle/moe_gate_expected.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle::moe_gate {

enum class Turn { difference, rotated, unit_vector };  // cos(theta - mu); by sin and cos of theta; by x/r and y/r
enum class Share { divided, shifted, in_logs };        // exp over its sum; the same less the maximum; exp(l - lse)
enum class Weigh { gates, exponentials, logits };      // what the weights are made of
enum class Sum { forwards, backwards, pairwise };
enum class Fault {
  none,
  kappa_times_temperature,
  atan2_swapped,
  mean_of_angles,
  weights_not_renormalised,
  topk_softmax_cooled_twice,
  lb_factor_e_missing,
  lb_detached,
  sincos_bf16,
  next_expert_on_small_gap,
  uniform_fallback_missing
};
inline constexpr int fault_count = 11;

struct Form {
  Turn turn = Turn::difference;
  Share share = Share::divided;
  Weigh weigh = Weigh::gates;
  Sum sum = Sum::forwards;
  bool smallest_first = false;  // the order of the selection
  Fault fault = Fault::none;
};

// What a form is not free to decide where it stands for the truth: the choices of another one.
struct Choices {
  std::vector<std::size_t> chosen;  // top_k for each token
  std::vector<char> cut;            // by token
};

template <class R>
struct Run {
  std::vector<R> gates, weights;
  R lb{0};
  std::vector<R> dphases;
  Choices choices;
};

template <class R>
Taped<R> log_taped(const Taped<R>& x) {
  return taped<R>(log_of(x.value), x, R(1) / x.value);
}

template <class N>
N summed(std::vector<N> x, Sum order) {
  if (order == Sum::backwards) std::reverse(x.begin(), x.end());
  if (order == Sum::pairwise)
    for (; x.size() > 1; x.resize((x.size() + 1) / 2))
      for (std::size_t i = 0; 2 * i < x.size(); ++i) x[i] = 2 * i + 1 < x.size() ? x[2 * i] + x[2 * i + 1] : x[2 * i];
  N sum = x.front();
  for (std::size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
  return sum;
}

// To bfloat16 and back, nearest even; its derivative is that of the identity.
template <class R>
Taped<R> in_bf16(Taped<R> x) {
  const float value = static_cast<float>(x.value);
  const int exponent = std::ilogb(value);
  x.value =
      value == 0 ? R(0) : static_cast<R>(std::ldexp(std::nearbyint(std::ldexp(value, 7 - exponent)), exponent - 7));
  return x;
}

template <class R>
class Gate {
 public:
  using N = Taped<R>;

  Gate(const Question& question, const Form& form, const Choices* given)
      : q_(question),
        form_(form),
        given_(given),
        E_(question.inputs[1]->values.size()),
        P_(static_cast<std::size_t>(question.inputs[0]->shape[2])),
        tokens_(question.inputs[0]->values.size() / P_) {}

  Run<R> run() {
    N::tape = &tape_;
    for (const double phase : q_.inputs[0]->values) phases_.push_back(N::leaf(R(phase)));
    for (const double one : q_.inputs[1]->values) mu_.push_back(N(R(one)));
    for (std::size_t t = 0; t < tokens_; ++t) token(t);
    const N lb = balance();
    Run<R> result{values(gates_), values(weights_), lb.value, {}, choices_};
    if (!q_.cotangents.empty()) result.dphases = gradient(lb);
    N::tape = nullptr;
    return result;
  }

 private:
  static std::vector<R> values(const std::vector<N>& numbers) {
    std::vector<R> result;
    for (const N& number : numbers) result.push_back(number.value);
    return result;
  }

  std::vector<N> cosines(std::size_t t) {
    std::vector<N> sines, cosines, result;
    for (std::size_t p = 0; p < P_; ++p) {
      const N phase = phases_[t * P_ + p];
      sines.push_back(sin_of(phase));
      cosines.push_back(cos_of(phase));
      if constexpr (!std::is_class_v<R>)
        if (form_.fault == Fault::sincos_bf16) {
          sines.back() = in_bf16(sines.back());
          cosines.back() = in_bf16(cosines.back());
        }
    }
    const N y = summed(sines, form_.sum), x = summed(cosines, form_.sum);
    N theta = form_.fault == Fault::atan2_swapped ? atan2_of(x, y) : atan2_of(y, x);
    if (form_.fault == Fault::mean_of_angles) {
      const std::vector<N> angles(phases_.begin() + static_cast<std::ptrdiff_t>(t * P_),
                                  phases_.begin() + static_cast<std::ptrdiff_t>((t + 1) * P_));
      theta = summed(angles, form_.sum) / N(static_cast<double>(P_));
    }
    const N length = sqrt_of(x * x + y * y);
    const bool unit = form_.turn == Turn::unit_vector;
    const N a = unit ? x / length : cos_of(theta), b = unit ? y / length : sin_of(theta);
    for (const N& mu : mu_)
      result.push_back(form_.turn == Turn::difference ? cos_of(theta - mu) : cos_of(mu) * a + sin_of(mu) * b);
    return result;
  }

  void choose(std::size_t t, const std::vector<N>& by) {
    std::vector<std::size_t> order(E_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t i, std::size_t j) { return by[i].value > by[j].value; });
    const R last = by[order[q_.top_k - 1]].value;
    if (form_.fault == Fault::next_expert_on_small_gap && q_.top_k < E_ &&
        last - by[order[q_.top_k]].value < R(1e-3) * last)
      std::swap(order[q_.top_k - 1], order[q_.top_k]);
    order.resize(q_.top_k);
    if (form_.smallest_first) std::reverse(order.begin(), order.end());
    if (given_ != nullptr)
      std::copy_n(given_->chosen.begin() + static_cast<std::ptrdiff_t>(t * q_.top_k), q_.top_k, order.begin());
    choices_.chosen.insert(choices_.chosen.end(), order.begin(), order.end());
  }

  std::vector<N> shares(const std::vector<N>& x) {
    const N sum = summed(x, form_.sum);
    std::vector<N> result;
    for (const N& one : x) result.push_back(one / sum);
    return result;
  }

  // exp(l - lse), or exp(l - max) over its sum
  std::vector<N> softmax(const std::vector<N>& l, bool in_logs) {
    R largest = l[0].value;
    for (const N& one : l) largest = one.value > largest ? one.value : largest;
    std::vector<N> e, result;
    for (const N& one : l) e.push_back(exp_of(one - N(largest)));
    if (!in_logs) return shares(e);
    const N lse = log_taped(summed(e, form_.sum)) + N(largest);
    for (const N& one : l) result.push_back(exp_of(one - lse));
    return result;
  }

  void token(std::size_t t) {
    const R kappa(q_.kappa), temperature(q_.temperature);
    const R steepness = form_.fault == Fault::kappa_times_temperature ? R(kappa * temperature) : R(kappa / temperature);
    std::vector<N> l, g;
    for (const N& cosine : cosines(t)) l.push_back(N(steepness) * cosine);
    for (const N& one : l) g.push_back(exp_of(one));
    const bool cut = form_.fault != Fault::uniform_fallback_missing &&
                     (given_ != nullptr ? given_->cut[t] != 0 : !(summed(g, form_.sum).value > power_of_ten<R>(-10)));
    choices_.cut.push_back(cut);
    const N equal(R(1) / R(static_cast<double>(E_)));
    const std::vector<N> gates = cut                             ? std::vector<N>(E_, equal)
                                 : form_.share == Share::divided ? shares(g)
                                                                 : softmax(l, form_.share == Share::in_logs);
    choose(t, form_.share == Share::in_logs && form_.fault == Fault::none ? l : gates);
    std::vector<N> chosen_gates, chosen_g, chosen_l;
    for (std::size_t k = 0; k < q_.top_k; ++k) {
      const std::size_t e = choices_.chosen[t * q_.top_k + k];
      chosen_gates.push_back(gates[e]);
      chosen_g.push_back(g[e]);
      chosen_l.push_back(form_.fault == Fault::topk_softmax_cooled_twice ? l[e] / N(R(q_.temperature)) : l[e]);
    }
    std::vector<N> weights = cut && form_.weigh != Weigh::gates
                                 ? std::vector<N>(q_.top_k, N(R(1) / R(double(q_.top_k))))
                             : form_.weigh == Weigh::exponentials ? shares(chosen_g)
                             : form_.weigh == Weigh::logits       ? softmax(chosen_l, false)
                                                                  : shares(chosen_gates);
    if (form_.fault == Fault::weights_not_renormalised) weights = chosen_gates;
    if (form_.fault == Fault::topk_softmax_cooled_twice && !cut) weights = softmax(chosen_l, false);
    gates_.insert(gates_.end(), gates.begin(), gates.end());
    weights_.insert(weights_.end(), weights.begin(), weights.end());
  }

  N balance() {
    std::vector<N> squares;
    for (std::size_t e = 0; e < E_; ++e) {
      std::vector<N> column;
      for (std::size_t t = 0; t < tokens_; ++t)
        column.push_back(form_.fault == Fault::lb_detached ? N(gates_[t * E_ + e].value) : gates_[t * E_ + e]);
      const N away =
          summed(column, form_.sum) / N(R(static_cast<double>(tokens_))) - N(R(1) / R(static_cast<double>(E_)));
      squares.push_back(away * away);
    }
    const N sum = summed(squares, form_.sum);
    return form_.fault == Fault::lb_factor_e_missing ? sum : N(R(static_cast<double>(E_))) * sum;
  }

  std::vector<R> gradient(const N& lb) {
    std::vector<R> seeds(tape_.size(), R(0));
    const auto seed = [&](const N& number, double cotangent) {
      if (number.node != Tape<R>::constant) seeds[number.node] = seeds[number.node] + R(cotangent);
    };
    if (q_.cotangents[0])
      for (std::size_t i = 0; i < gates_.size(); ++i) seed(gates_[i], q_.cotangents[0]->values[i]);
    if (q_.cotangents[2])
      for (std::size_t i = 0; i < weights_.size(); ++i) seed(weights_[i], q_.cotangents[2]->values[i]);
    if (q_.cotangents[3]) seed(lb, q_.cotangents[3]->values[0]);
    const std::vector<R> pulled = tape_.pull_back(std::move(seeds));
    std::vector<R> result;
    for (const N& phase : phases_) result.push_back(pulled[phase.node]);
    return result;
  }

  const Question& q_;
  const Form form_;
  const Choices* given_;
  const std::size_t E_, P_, tokens_;
  Tape<R> tape_;
  std::vector<N> phases_, mu_, gates_, weights_;
  Choices choices_;
};

// As an answer to the call: rounded to the judged type, gradient last.
template <class R>
std::vector<Array> answer_of(const Question& question, const Run<R>& run) {
  const Shape& phases = question.inputs[0]->shape;
  const auto E = question.inputs[1]->shape[0], k = static_cast<std::int64_t>(question.top_k);
  const auto array = [&](const char* name, Shape shape, const auto& values) {
    Array a{name, question.dtype, std::move(shape), {}};
    for (const auto& x : values) a.values.push_back(rounded(static_cast<double>(x), question.dtype));
    return a;
  };
  Array index = array("topk_idx", {phases[0], phases[1], k}, run.choices.chosen);
  index.dtype = DType::int64;
  return {array("gates", {phases[0], phases[1], E}, run.gates), std::move(index),
          array("topk_weights", {phases[0], phases[1], k}, run.weights), array("lb", {}, std::vector<R>{run.lb}),
          array("dphases", phases, run.dphases)};
}

// In the judged type, or in double and rounded once.
inline std::vector<Array> answer_of(const Question& question, const Form& form, bool wide_inside) {
  if (question.dtype == DType::float32 && !wide_inside)
    return answer_of(question, Gate<float>(question, form, nullptr).run());
  return answer_of(question, Gate<double>(question, form, nullptr).run());
}

struct Refusal {
  std::string text;        // of the first element that is not certified equal; empty where there is none
  bool different = false;  // it is certified different
  std::size_t undecidable = 0, elements = 0;
  double worst = 0;
};

// The answer against the definition given the answer's own choices.
inline Refusal refusal(Question question, const std::vector<Array>& answer) {
  question.answered = &answer;
  const Expected expected = moe_gate::expected(question);
  Refusal result;
  const auto look = [&](const ExpectedTensor& tensor, const Array& got) {
    for (std::size_t i = 0; i < tensor.value.size(); ++i) {
      ++result.elements;
      if (std::isinf(tensor.tolerance[i])) {
        ++result.undecidable;
        continue;
      }
      const Judgement judgement = judge(tensor, expected.radius_per_tolerance, i, got.values[i]);
      result.worst = std::max(result.worst, judgement.ratio);
      if (judgement.verdict == Verdict::equal) continue;
      result.different = result.different || judgement.verdict == Verdict::different;
      if (result.text.empty())
        result.text = tensor.name + "[" + std::to_string(i) + "] is " + std::to_string(got.values[i]) + ", value " +
                      std::to_string(tensor.value[i]) + ", ratio " + std::to_string(judgement.ratio);
    }
  };
  for (std::size_t i = 0; i < expected.outputs.size(); ++i) look(expected.outputs[i], answer[i]);
  if (!expected.gradients.empty()) look(*expected.gradients[0], answer.back());
  return result;
}

}  // namespace fractus::oracle::moe_gate
