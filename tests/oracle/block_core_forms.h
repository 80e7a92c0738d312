// A block written down as a plain program of numbers, apart from the oracle's own: run in float or double it is a right
// form, with autograd by the tape; in 50 digits it is the truth; with a fault it is what has to be refused.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "oracle/block_core_expected.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle::block_core {

struct Form {
  bool backwards = false;         // sums from the last term on
  bool root_first = false;        // LayerNorm divides by the root, and multiplies by its reciprocal otherwise
  bool exact_exp = false;         // exp(x) in the place of (exp(x) - 1) + 1
  bool mix_last = false;          // w_out level by level, mixed behind it
  std::string fault;              // one of those of shared/mutants/block_core.py, or none
  const Array* angles = nullptr;  // what the route takes in the place of its own, with its own derivatives
};

template <class R>
struct Evaluated {
  std::vector<R> out, S, z, theta;
  R lb;
  std::map<std::string, std::vector<R>> gradients;  // by input
};

template <class R>
class Plain {
 public:
  using X = Taped<R>;
  using Vector = std::vector<X>;

  Plain(const Question& question, Form form) : question_(question), form_(std::move(form)) {
    X::tape = &tape_;
    for (const auto& input : question.inputs)
      if (input)
        for (const double value : input->values) inputs_[input->name].push_back(X::leaf(R(value)));
    const Shape& h = find("h").shape;
    B = size(h[0]), T = size(h[1]), d = size(h[2]), H = size(scalar("n_heads")), D = d / H;
    L = inputs_.at("level_offsets").size(), P = inputs_.at("kuramoto.omega").size();
    rank = inputs_.at("kuramoto.coupling_lambda").size(), E = inputs_.at("expert_phases").size();
    F = size(find("moe.b1").shape[1]);
  }

  Evaluated<R> run() {
    std::vector<Vector> h1(B * T), moe_rows(B * T);
    for (std::size_t b = 0; b < B; ++b) attend(b, h1);
    std::vector<Vector> theta(B * T), gates;
    Vector out;
    for (std::size_t n = 0; n < B * T; ++n)
      theta[n] = oscillate(faulty("theta_without_norm") ? h1[n] : norm("norm_kur", h1[n]), n);
    for (std::size_t n = 0; n < B * T; ++n) {
      const std::size_t b = n / T;
      const std::size_t by = faulty("routed_by_first_token") ? b * T : faulty("routed_per_token") ? n : (b + 1) * T - 1;
      const Vector x = norm("norm_moe", faulty("moe_norm_before_attention") ? row("h", n, d) : h1[n]);
      const auto [gate, mixed] = mix(x, theta[by]);
      gates.push_back(gate);
      for (std::size_t c = 0; c < d; ++c) out.push_back(h1[n][c] + mixed[c]);
    }
    const X lb = balance(gates);

    Evaluated<R> result{values(out), values(S_), values(z_), {}, lb.value, {}};
    for (const Vector& one : theta)
      for (const X& angle : one) result.theta.push_back(angle.value);
    pull_back(out, lb, result);
    X::tape = nullptr;
    return result;
  }

 private:
  const Question& question_;
  Form form_;
  Tape<R> tape_;
  std::map<std::string, Vector> inputs_;
  std::size_t B, T, d, H, D, L, P, rank, E, F;
  Vector S_, z_;

  static std::size_t size(double x) { return static_cast<std::size_t>(x); }
  static X number(double x) { return X(R(x)); }
  static R turn() {
    using std::acos;
    return 2 * acos(R(-1));
  }
  bool faulty(const char* name) const { return form_.fault == name; }
  double scalar(const char* name) const { return question_.scalars.at(name); }
  const Array& find(const std::string& name) const {
    for (const auto& input : question_.inputs)
      if (input && input->name == name) return *input;
    throw std::invalid_argument(name);
  }
  Vector row(const std::string& name, std::size_t r, std::size_t columns) const {
    const auto first = inputs_.at(name).begin() + static_cast<std::ptrdiff_t>(r * columns);
    return Vector(first, first + static_cast<std::ptrdiff_t>(columns));
  }
  static std::vector<R> values(const Vector& x) {
    std::vector<R> result;
    for (const X& one : x) result.push_back(one.value);
    return result;
  }

  X sum(Vector terms) const {
    if (form_.backwards) std::reverse(terms.begin(), terms.end());
    X total = terms.front();
    for (std::size_t i = 1; i < terms.size(); ++i) total = total + terms[i];
    return total;
  }
  X sum_of(std::size_t count, const std::function<X(std::size_t)>& term) const {
    Vector terms;
    for (std::size_t i = 0; i < count; ++i) terms.push_back(term(i));
    return sum(std::move(terms));
  }
  // x M, or x M^T, of matrix `at` in the tensor.
  Vector product(const Vector& x, const std::string& name, std::size_t at, std::size_t columns, bool transposed) const {
    const Vector& M = inputs_.at(name);
    const std::size_t K = x.size(), first = at * K * columns;
    Vector y;
    for (std::size_t o = 0; o < columns; ++o)
      y.push_back(
          sum_of(K, [&](std::size_t k) { return x[k] * M[first + (transposed ? o * K + k : k * columns + o)]; }));
    return y;
  }
  static Vector plus(Vector x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] + y[i];
    return x;
  }
  static Vector times(const X& a, Vector x) {
    for (X& one : x) one = a * one;
    return x;
  }

  Vector norm(const std::string& name, const Vector& x) const {
    const X count = number(static_cast<double>(x.size()));
    const X mean = sum(x) / count;
    Vector c = x, y;
    for (X& one : c) one = one - mean;
    const X variance = sum_of(c.size(), [&](std::size_t i) { return c[i] * c[i]; }) / count;
    const X root = sqrt_of(variance + X(power_of_ten<R>(faulty("layernorm_eps_1e_6") ? -6 : -5)));
    for (std::size_t i = 0; i < c.size(); ++i) {
      const X hat = form_.root_first ? c[i] / root : c[i] * (number(1) / root);
      y.push_back(hat * inputs_.at(name + ".weight")[i] + inputs_.at(name + ".bias")[i]);
    }
    return y;
  }

  X feature(const X& x) const {
    if (x.value > 0) return x + number(1);
    return form_.exact_exp ? exp_of(x) : (exp_of(x) - number(1)) + number(1);
  }

  X offset(std::size_t l) const {
    const X omega = inputs_.at("level_offsets")[l];
    return faulty("offsets_phi_not_squared") ? sqrt_of(omega) : omega;
  }

  void attend(std::size_t b, std::vector<Vector>& h1) {
    std::vector<Vector> qkv[3];
    for (std::size_t t = 0; t < T; ++t) {
      const Vector x = norm("norm_attn", row("h", b * T + t, d));
      for (std::size_t i = 0; i < 3; ++i)
        qkv[i].push_back(plus(product(x, "attn.w_qkv", i, d, false), row("attn.b_qkv", i, d)));
    }
    std::vector<std::vector<Vector>> y(L, std::vector<Vector>(T, Vector(d)));
    Vector S(d * d), z(d);
    const auto state = [&](const char* name, std::size_t i) {
      return inputs_.contains(name) ? X(inputs_.at(name)[i].value) : number(0);
    };
    for (std::size_t head = 0; head < H; ++head) {
      std::vector<Vector> of_level_S, of_level_z;
      for (std::size_t l = 0; l < L; ++l) {
        Vector one_S, one_z;
        for (std::size_t p = 0; p < D; ++p) {
          const std::size_t at = head * D + p;
          one_z.push_back(state("z0", b * d + at));
          for (std::size_t c = 0; c < D; ++c) one_S.push_back(state("S0", (b * d + at) * d + head * D + c));
        }
        for (std::size_t t = 0; t < T; ++t) {
          Vector q, k, v;
          for (std::size_t p = 0; p < D; ++p) {
            q.push_back(feature(qkv[0][t][head * D + p] + offset(l)));
            k.push_back(feature(qkv[1][t][head * D + p] + offset(l)));
            v.push_back(qkv[2][t][head * D + p]);
            if (faulty("level_offset_on_v")) v.back() = v.back() + offset(l);
          }
          for (std::size_t p = 0; p < D; ++p) {
            one_z[p] = one_z[p] + k[p];
            for (std::size_t c = 0; c < D; ++c) one_S[p * D + c] = one_S[p * D + c] + k[p] * v[c];
          }
          const X den = sum_of(D, [&](std::size_t p) { return q[p] * one_z[p]; }) + X(power_of_ten<R>(-20));
          for (std::size_t c = 0; c < D; ++c)
            y[l][t][head * D + c] = sum_of(D, [&](std::size_t p) { return q[p] * one_S[p * D + c]; }) / den;
        }
        of_level_S.push_back(one_S);
        of_level_z.push_back(one_z);
      }
      const auto pooled = [&](const std::vector<Vector>& levels, std::size_t i) {
        if (faulty("carry_of_level_zero")) return levels[0][i];
        const X total = sum_of(L, [&](std::size_t l) { return levels[l][i]; });
        return faulty("carry_summed_over_levels") ? total : total / number(static_cast<double>(L));
      };
      for (std::size_t p = 0; p < D; ++p) {
        z[head * D + p] = pooled(of_level_z, p);
        for (std::size_t c = 0; c < D; ++c) {
          const std::size_t i = faulty("state_stored_transposed") ? c * D + p : p * D + c;
          S[(head * D + p) * d + head * D + c] = pooled(of_level_S, i);
        }
      }
    }
    S_.insert(S_.end(), S.begin(), S.end());
    z_.insert(z_.end(), z.begin(), z.end());

    Vector e, shares;
    for (const X& logit : inputs_.at("attn.level_logits")) e.push_back(exp_of(logit));
    for (const X& one : e) shares.push_back(one / sum(e));
    for (std::size_t t = 0; t < T; ++t) {
      Vector mixed;
      for (std::size_t l = 0; l < L; ++l) {
        Vector part = times(shares[l], y[l][t]);
        if (form_.mix_last) part = product(part, "attn.w_out", 0, d, false);
        mixed = l == 0 ? part : plus(mixed, part);
      }
      if (!form_.mix_last) mixed = product(mixed, "attn.w_out", 0, d, false);
      h1[b * T + t] = plus(row("h", b * T + t, d), plus(mixed, inputs_.at("attn.b_out")));
    }
  }

  Vector oscillate(const Vector& x, std::size_t n) const {
    using std::floor;
    const auto wrapped = [](const X& angle) {
      return X(angle.value - floor(angle.value / turn()) * turn(), angle.node);
    };
    const X mean = sum(x) / number(static_cast<double>(d));
    const Vector &omega = inputs_.at("kuramoto.omega"), &U = inputs_.at("kuramoto.coupling_u"),
                 &lambda = inputs_.at("kuramoto.coupling_lambda");
    const auto rate = [&](const Vector& theta) {
      Vector f;
      const auto coupled = [&](std::size_t p, const std::function<X(const X&)>& wave) {
        return sum_of(rank, [&](std::size_t k) {
          return U[p * rank + k] * lambda[k] *
                 sum_of(P, [&](std::size_t j) { return U[j * rank + k] * wave(theta[j]); });
        });
      };
      for (std::size_t p = 0; p < P; ++p)
        f.push_back(omega[p] - number(scalar("damping")) * theta[p] +
                    cos_of(theta[p]) * coupled(p, [](const X& a) { return sin_of(a); }) -
                    sin_of(theta[p]) * coupled(p, [](const X& a) { return cos_of(a); }));
      return f;
    };
    Vector theta;
    for (std::size_t p = 0; p < P; ++p)
      theta.push_back(wrapped(mean * X(turn()) + X(turn() * R(static_cast<double>(p)) / R(static_cast<double>(P)))));
    const X dt = number(scalar("dt"));
    for (std::size_t step = 0; step < size(scalar("n_steps")); ++step) {
      const Vector k1 = rate(theta), k2 = rate(plus(theta, times(dt / number(2), k1))),
                   k3 = rate(plus(theta, times(dt / number(2), k2))), k4 = rate(plus(theta, times(dt, k3)));
      for (std::size_t p = 0; p < P; ++p)
        theta[p] = wrapped(theta[p] + dt / number(6) * (k1[p] + number(2) * k2[p] + number(2) * k3[p] + k4[p]));
    }
    if (form_.angles != nullptr)
      for (std::size_t p = 0; p < P; ++p) theta[p].value = R(form_.angles->values[n * P + p]);
    return theta;
  }

  std::pair<Vector, Vector> mix(const Vector& x, const Vector& phases) const {
    const X mean = atan2_of(sum_of(P, [&](std::size_t p) { return sin_of(phases[p]); }),
                            sum_of(P, [&](std::size_t p) { return cos_of(phases[p]); }));
    const X steepness = X(R(scalar("kappa")) / R(scalar("temperature")));
    Vector g, gates;
    for (const X& mu : inputs_.at("expert_phases")) g.push_back(exp_of(steepness * cos_of(mean - X(mu.value))));
    const X total = sum(g);
    for (const X& one : g) gates.push_back(one / total);
    std::vector<std::size_t> order(E);
    for (std::size_t e = 0; e < E; ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return gates[a].value > gates[b].value; });
    order.resize(size(scalar("top_k")));
    Vector chosen, mixed;
    for (const std::size_t e : order) chosen.push_back(gates[e]);
    const X of_chosen = sum(chosen);
    for (const std::size_t e : order) {
      const Vector part = times(gates[e] / of_chosen, expert(x, e));
      mixed = mixed.empty() ? part : plus(mixed, part);
    }
    return {gates, mixed};
  }

  static X gelu(const X& x) {
    const X half = number(1) / number(2), c = X(sqrt_of(R(4) / turn()));
    const X cubic = X(R(44715) * power_of_ten<R>(-6)) * x * x * x;
    return half * x * (number(1) + tanh_of(c * (x + cubic)));
  }

  Vector expert(const Vector& x, std::size_t e) const {
    const bool dense = inputs_.contains("moe.w1");
    const auto map = [&](const Vector& from, const char* number, std::size_t columns) {
      const auto name = [&](const char* letter) { return std::string("moe.") + letter + number; };
      if (dense) return plus(product(from, name("w"), e, columns, false), row(name("b"), e, columns));
      const std::size_t r = size(find(name("V")).shape[2]);
      const Vector inner = product(from, name("V"), e, r, false);
      return plus(times(inputs_.at(name("scale"))[e], product(inner, name("U"), e, columns, true)),
                  row(name("b"), e, columns));
    };
    Vector active = map(x, "1", F);
    for (X& one : active) one = gelu(one);
    return map(active, "2", d);
  }

  X balance(const std::vector<Vector>& gates) const {
    const X experts = number(static_cast<double>(E));
    return experts * sum_of(E, [&](std::size_t e) {
             const X away = sum_of(gates.size(), [&](std::size_t n) { return gates[n][e]; }) /
                                number(static_cast<double>(gates.size())) -
                            number(1) / experts;
             return away * away;
           });
  }

  void pull_back(const Vector& out, const X& lb, Evaluated<R>& result) const {
    std::vector<R> seeds(tape_.size(), R(0));
    const auto seed = [&](const X& x, double cotangent) {
      if (x.node != Tape<R>::constant) seeds[x.node] = seeds[x.node] + R(cotangent);
    };
    if (question_.cotangents[0])
      for (std::size_t i = 0; i < out.size(); ++i) seed(out[i], question_.cotangents[0]->values[i]);
    if (question_.cotangents[1]) seed(lb, question_.cotangents[1]->values[0]);
    const std::vector<R> pulled = tape_.pull_back(std::move(seeds));
    for (const auto& [name, leaves] : inputs_)
      for (const X& leaf : leaves) result.gradients[name].push_back(pulled[leaf.node]);
  }
};

}  // namespace fractus::oracle::block_core
