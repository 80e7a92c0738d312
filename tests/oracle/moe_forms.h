// The mixture of experts as its authors write it, in the judged type or in double inside, over a tape of that type:
// right forms that the bounds have to hold, and the faults of shared/mutants/moe.py, which they have to refuse.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "oracle/exact.h"
#include "oracle/moe_expected.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle::moe {

enum class Sum { forwards, backwards, pairwise };
enum class Rank { through, contracted };       // (x V) U^T, or x (V U^T)
enum class Scaled { product, inner, matrix };  // s (x V) U^T: the whole, x V, or V U^T
enum class Weighed { output, activation };     // where the gate's weight is applied
enum class Fault {
  none,
  gelu_erf,
  scale2_forgotten,
  b2_averaged_over_chosen,
  slot_weights_reversed,
  raw_gates_as_weights,
  router_gradient_dropped,
  capacity_limit
};
inline constexpr Fault faults[] = {Fault::gelu_erf,
                                   Fault::scale2_forgotten,
                                   Fault::b2_averaged_over_chosen,
                                   Fault::slot_weights_reversed,
                                   Fault::raw_gates_as_weights,
                                   Fault::router_gradient_dropped,
                                   Fault::capacity_limit};

struct Form {
  Sum sum = Sum::forwards;
  Rank rank = Rank::through;
  Scaled scaled = Scaled::product;
  Weighed weighed = Weighed::output;
  bool all_experts = false;   // weights of 0 where one is not chosen
  bool one_sum = false;       // all of a token's experts run on in one accumulator
  bool last_of_ties = false;  // which of equal gates is taken
  bool logistic = false;      // gelu as x times the logistic function
  Fault fault = Fault::none;
};

template <class R>
struct Evaluated {
  std::vector<R> out;
  R lb{0};
  std::map<std::string, std::vector<R>> gradients;
};

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

// `given`: the selections by token that a run stands for the truth of; else its own.
template <class R>
class Mixture {
 public:
  using N = Taped<R>;

  Mixture(const Question& question, const Form& form, const std::vector<std::vector<std::size_t>>* given = nullptr)
      : q_(question), form_(form), given_(given) {
    N::tape = &tape_;
    for (const auto& input : q_.inputs) {
      if (!input) continue;
      std::vector<N>& numbers = leaves_[input->name];
      for (const double x : input->values) numbers.push_back(input->name == "expert_phases" ? N(R(x)) : N::leaf(R(x)));
      shapes_[input->name] = input->shape;
    }
    const auto extent = [&](const char* tensor, std::size_t i) {
      return static_cast<std::size_t>(shapes_.at(tensor)[i]);
    };
    E_ = extent("b1", 0);
    F_ = extent("b1", 1);
    d_ = extent("b2", 1);
    P_ = extent("phases", 2);
    r_ = shapes_.contains("V1") ? extent("V1", 2) : 0;
    tokens_ = leaves_.at("h").size() / d_;
  }
  ~Mixture() { N::tape = nullptr; }

  Evaluated<R> run() {
    std::vector<N> out;
    std::vector<std::vector<N>> gates;
    std::vector<std::size_t> taken(E_);
    const auto cap =
        static_cast<std::size_t>(std::ceil(1.25 * static_cast<double>(tokens_ * q_.top_k) / static_cast<double>(E_)));
    for (std::size_t t = 0; t < tokens_; ++t) {
      gates.push_back(gates_of(t));
      const std::vector<std::size_t> chosen = given_ ? (*given_)[t] : chosen_of(gates.back());
      std::vector<N> weights = weights_of(gates.back(), chosen);
      for (std::size_t s = 0; s < chosen.size(); ++s)
        if (++taken[chosen[s]] > cap && form_.fault == Fault::capacity_limit) weights[s] = N(0);
      for (const N& x : mixed(t, chosen, weights)) out.push_back(x);
      selections.push_back(chosen);
    }
    const N lb = balance(gates);
    Evaluated<R> result;
    for (const N& x : out) result.out.push_back(x.value);
    result.lb = lb.value;
    if (!q_.cotangents.empty()) pull_back(out, lb, result);
    return result;
  }

  std::vector<std::vector<std::size_t>> selections;  // of the run

 private:
  N input(const std::string& name, std::size_t i) const { return leaves_.at(name)[i]; }

  std::vector<N> gates_of(std::size_t t) const {
    std::vector<N> sines, cosines, g;
    for (std::size_t p = 0; p < P_; ++p) {
      sines.push_back(sin_of(input("phases", t * P_ + p)));
      cosines.push_back(cos_of(input("phases", t * P_ + p)));
    }
    const N theta = atan2_of(summed(sines, form_.sum), summed(cosines, form_.sum));
    const N steepness(R(q_.kappa) / R(q_.temperature));
    for (std::size_t e = 0; e < E_; ++e) g.push_back(exp_of(steepness * cos_of(theta - input("expert_phases", e))));
    const N sum = summed(g, form_.sum);
    for (N& one : g) one = one / sum;
    return g;
  }

  std::vector<std::size_t> chosen_of(const std::vector<N>& gates) const {
    std::vector<std::size_t> order(E_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (form_.last_of_ties) std::reverse(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t i, std::size_t j) { return gates[i].value > gates[j].value; });
    order.resize(q_.top_k);
    return order;
  }

  std::vector<N> weights_of(const std::vector<N>& gates, const std::vector<std::size_t>& chosen) const {
    std::vector<N> those;
    for (const std::size_t e : chosen) those.push_back(gates[e]);
    if (form_.fault == Fault::raw_gates_as_weights) return those;
    const N sum = summed(those, form_.sum);
    for (N& one : those) one = one / sum;
    if (form_.fault == Fault::router_gradient_dropped)
      for (N& one : those) one = N(one.value);
    if (form_.fault == Fault::slot_weights_reversed) std::reverse(those.begin(), those.end());
    return those;
  }

  N gelu_of(const N& x) const {
    const N half(R(0.5)), one(1), cubic(R(44715) / R(1000000));
    using std::acos, std::sqrt;
    const N root(R(sqrt(R(2) / R(acos(R(-1))))));
    if (form_.fault == Fault::gelu_erf) return erf_gelu(x);
    const N inner = root * (x + cubic * x * x * x);
    if (form_.logistic) {  // of whichever sign of the exponent does not overflow
      const bool left = inner.value < R(0);
      const N e = exp_of(left ? inner + inner : -(inner + inner));
      return x * (left ? e / (one + e) : one / (one + e));
    }
    return half * x * (one + tanh_of(inner));
  }
  static N erf_gelu(const N& x) {
    using std::erf, std::exp, std::sqrt, boost::multiprecision::erf;
    const R normal = R(0.5) * (R(1) + R(erf(R(x.value / R(std::sqrt(2.0))))));
    const R slope = normal + x.value * R(exp(R(-x.value * x.value / R(2)))) * R(0.3989422804014327);
    return taped<R>(x.value * normal, x, slope);
  }

  // The terms of x W or s x V U^T in one column, before they are summed.
  std::vector<N> terms(const std::vector<N>& x, std::size_t e, bool first, std::size_t column) const {
    const std::size_t rows = x.size(), columns = first ? F_ : d_;
    std::vector<N> list;
    if (r_ == 0) {
      for (std::size_t i = 0; i < rows; ++i)
        list.push_back(x[i] * input(first ? "w1" : "w2", (e * rows + i) * columns + column));
      return list;
    }
    const std::string number = first ? "1" : "2";
    const N scale = form_.fault == Fault::scale2_forgotten && !first ? N(1) : input("scale" + number, e);
    const auto V = [&](std::size_t i, std::size_t k) { return input("V" + number, (e * rows + i) * r_ + k); };
    const auto U = [&](std::size_t k) { return input("U" + number, (e * columns + column) * r_ + k); };
    if (form_.rank == Rank::contracted) {
      for (std::size_t i = 0; i < rows; ++i) {
        std::vector<N> products;
        for (std::size_t k = 0; k < r_; ++k) products.push_back(V(i, k) * U(k));
        N W = summed(products, form_.sum);
        if (form_.scaled == Scaled::matrix) W = scale * W;
        list.push_back(form_.scaled == Scaled::matrix ? x[i] * W : scale * x[i] * W);
      }
      return list;
    }
    for (std::size_t k = 0; k < r_; ++k) {
      std::vector<N> products;
      for (std::size_t i = 0; i < rows; ++i) products.push_back(x[i] * V(i, k));
      N inner = summed(products, form_.sum);
      if (form_.scaled != Scaled::product) inner = scale * inner;
      list.push_back(inner * U(k));
    }
    if (form_.scaled == Scaled::product) list = {scale * summed(list, form_.sum)};
    return list;
  }

  std::vector<N> activations(std::size_t t, std::size_t e) const {
    std::vector<N> x, result;
    for (std::size_t c = 0; c < d_; ++c) x.push_back(input("h", t * d_ + c));
    for (std::size_t f = 0; f < F_; ++f)
      result.push_back(gelu_of(summed(terms(x, e, true, f), form_.sum) + input("b1", e * F_ + f)));
    return result;
  }

  std::vector<N> mixed(std::size_t t, const std::vector<std::size_t>& chosen, const std::vector<N>& weights) const {
    std::vector<std::pair<std::size_t, N>> given;
    for (std::size_t s = 0; s < chosen.size(); ++s) given.emplace_back(chosen[s], weights[s]);
    if (form_.all_experts)
      for (std::size_t e = 0; e < E_; ++e)
        if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) given.emplace_back(e, N(0));
    std::vector<std::vector<N>> active;
    for (const auto& [e, weight] : given) {
      active.push_back(activations(t, e));
      if (form_.weighed == Weighed::activation)
        for (N& a : active.back()) a = weight * a;
    }
    std::vector<N> out;
    for (std::size_t c = 0; c < d_; ++c) {
      std::vector<N> of_experts;
      for (std::size_t i = 0; i < given.size(); ++i) {
        const auto& [e, weight] = given[i];
        std::vector<N> list = terms(active[i], e, false, c);
        const N b2 = input("b2", e * d_ + c);
        const bool averaged = form_.fault == Fault::b2_averaged_over_chosen;
        const N bias = averaged && i < chosen.size() ? b2 / N(static_cast<double>(chosen.size())) : weight * b2;
        if (form_.weighed == Weighed::activation || averaged) {
          if (form_.weighed != Weighed::activation) list = {weight * summed(list, form_.sum)};
          list.push_back(bias);
          if (form_.one_sum)
            of_experts.insert(of_experts.end(), list.begin(), list.end());
          else
            of_experts.push_back(summed(list, form_.sum));
        } else {
          of_experts.push_back(weight * (summed(list, form_.sum) + b2));
        }
      }
      out.push_back(summed(of_experts, form_.sum));
    }
    return out;
  }

  N balance(const std::vector<std::vector<N>>& gates) const {
    const N count(R(static_cast<double>(tokens_))), experts(R(static_cast<double>(E_)));
    std::vector<N> squares;
    for (std::size_t e = 0; e < E_; ++e) {
      std::vector<N> those;
      for (const auto& one : gates) those.push_back(one[e]);
      const N away = summed(those, form_.sum) / count - N(1) / experts;
      squares.push_back(away * away);
    }
    return experts * summed(squares, form_.sum);
  }

  void pull_back(const std::vector<N>& out, const N& lb, Evaluated<R>& result) {
    std::vector<R> seeds(tape_.size(), R(0));
    const auto seed = [&](const N& x, double cotangent) {
      if (x.node != Tape<R>::constant) seeds[x.node] = seeds[x.node] + R(cotangent);
    };
    if (q_.cotangents[0])
      for (std::size_t i = 0; i < out.size(); ++i) seed(out[i], q_.cotangents[0]->values[i]);
    if (q_.cotangents[1]) seed(lb, q_.cotangents[1]->values[0]);
    const std::vector<R> pulled = tape_.pull_back(std::move(seeds));
    for (const auto& [name, numbers] : leaves_)
      if (name != "expert_phases")
        for (const N& x : numbers) result.gradients[name].push_back(pulled[x.node]);
  }

  const Question& q_;
  const Form form_;
  const std::vector<std::vector<std::size_t>>* given_;
  Tape<R> tape_;
  std::map<std::string, std::vector<N>> leaves_;
  std::map<std::string, Shape> shapes_;
  std::size_t E_ = 0, F_ = 0, d_ = 0, P_ = 0, r_ = 0, tokens_ = 0;
};

}  // namespace fractus::oracle::moe
