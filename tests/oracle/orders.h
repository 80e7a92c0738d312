// Linear attention and its adjoint in plain floating point, in any of many correct orders of evaluation.
//
// An order says how a sum is added up, whether q meets the state or the scores q.k, where the division stands and how
// the adjoint of the denominator is formed. It is written apart from oracle/, of which it shares nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "oracle/linear_attention_expected.h"

namespace fractus::oracle::linear_attention {

enum class Sum { sequential, reverse, pairwise, blocks, random_tree, fused, compensated, wide };
// running: S_t from S_(t-1). prefix: S_t afresh from S0. scores: q.k inside a block, the state across blocks.
enum class By { running, prefix, scores };
enum class Quotient { divide, reciprocal };
// -(g.y)/den, -sum g ((num/den)/den) as autograd has it, or -(g/den).y
enum class DenAdjoint { of_y, of_quotient, of_dnum };
// What the adjoint keeps of the read, or has anew, with den summed up in another order: beside the cut it may divide
// where y did not.
enum class Anew { nothing, den, den_and_y };

struct Order {
  const char* name;
  By by = By::running;
  Sum sum = Sum::sequential;
  std::size_t sum_block = 2;
  std::size_t block = 1000;  // of scores
  Quotient quotient = Quotient::divide;
  bool early = false;  // scores and queries are divided before they meet the values
  bool flat = false;   // scores and state are read into one accumulator
  DenAdjoint den_adjoint = DenAdjoint::of_y;
  std::size_t piece = 0;      // the sequence is cut into pieces that hand the state on; 0: whole
  Anew anew = Anew::nothing;  // not where the scores are divided early
};

// Outputs y, S, z and then the gradients of q, k, v, S0, z0.
template <class F>
using Answer = std::array<std::vector<F>, 8>;

template <class F>
struct Problem {
  std::size_t T = 0, D = 0;
  std::vector<F> q, k, v, S0, z0, gy, gS, gz;
};

template <class F>
Problem<F> problem_of(const Question& question) {
  Problem<F> p;
  p.T = static_cast<std::size_t>(question.inputs[0]->shape[1]);
  p.D = static_cast<std::size_t>(question.inputs[0]->shape[2]);
  const auto read = [](const std::vector<std::optional<Array>>& list, std::size_t i, std::size_t size) {
    if (i >= list.size() || !list[i]) return std::vector<F>(size);
    return std::vector<F>(list[i]->values.begin(), list[i]->values.end());
  };
  const std::size_t tokens = p.T * p.D, state = p.D * p.D;
  p.q = read(question.inputs, 0, tokens), p.k = read(question.inputs, 1, tokens),
  p.v = read(question.inputs, 2, tokens);
  p.S0 = read(question.inputs, 3, state), p.z0 = read(question.inputs, 4, p.D);
  p.gy = read(question.cotangents, 0, tokens), p.gS = read(question.cotangents, 1, state),
  p.gz = read(question.cotangents, 2, p.D);
  return p;
}

template <class F>
F added(const Order& o, F* x, std::size_t n) {
  F sum = 0;
  switch (o.sum) {
    case Sum::reverse:
      for (std::size_t i = n; i-- > 0;) sum += x[i];
      return sum;
    case Sum::pairwise:
      if (n <= 2) return n == 0 ? F(0) : n == 1 ? x[0] : x[0] + x[1];
      return added(o, x, n / 2) + added(o, x + n / 2, n - n / 2);
    case Sum::blocks:
      for (std::size_t first = 0; first < n; first += o.sum_block) {
        F part = 0;
        for (std::size_t i = first; i < std::min(n, first + o.sum_block); ++i) part += x[i];
        sum += part;
      }
      return sum;
    case Sum::random_tree: {
      std::size_t hash = n * 2654435761U;
      for (; n > 1; --n) {  // two terms anywhere become one
        hash = hash * 6364136223846793005U + 1442695040888963407U;
        std::swap(x[(hash >> 33) % n], x[n - 1]);
        x[(hash >> 17) % (n - 1)] += x[n - 1];
      }
      return n == 0 ? F(0) : x[0];
    }
    case Sum::compensated: {  // Kahan 1965
      F lost = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const F term = x[i] - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
      }
      return sum;
    }
    default:
      for (std::size_t i = 0; i < n; ++i) sum += x[i];
      return sum;
  }
}

// sum_i a(i) b(i)
template <class F, class A, class B>
F total(const Order& o, std::size_t n, A a, B b) {
  if (o.sum == Sum::fused) {
    F sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum = std::fma(a(i), b(i), sum);
    return sum;
  }
  if (o.sum == Sum::wide) {
    using W = std::conditional_t<sizeof(F) == 4, double, long double>;
    W sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<W>(a(i)) * b(i);
    return static_cast<F>(sum);
  }
  std::array<F, 512> terms;
  if (n > terms.size()) throw std::length_error("orders.h: a sum of more than 512 terms");
  for (std::size_t i = 0; i < n; ++i) terms[i] = a(i) * b(i);
  return added(o, terms.data(), n);
}

// Two contractions added: each for itself, or (flat) all terms in one accumulator.
template <class F, class A, class B, class C, class E>
F total(const Order& o, std::size_t n, A a, B b, std::size_t m, C c, E e) {
  if (n == 0) return total<F>(o, m, c, e);
  if (!o.flat) return total<F>(o, n, a, b) + total<F>(o, m, c, e);
  return total<F>(
      o, n + m, [&](std::size_t i) { return i < n ? a(i) : c(i - n); },
      [&](std::size_t i) { return i < n ? b(i) : e(i - n); });
}

template <class F>
class Evaluation {
 public:
  Evaluation(const Problem<F>& problem, const Order& order, F epsilon)
      : in(problem),
        o(order),
        T(problem.T),
        D(problem.D),
        epsilon_(epsilon),
        S(T + 1),
        z(T + 1),
        A(T),
        L(T),
        M(T),
        den(T),
        dden(T) {}

  Answer<F> run() {
    S[0] = in.S0, z[0] = in.z0;
    for (std::size_t t = 0; t < T; ++t) {
      if (o.by != By::scores) carry_to(t + 1);
      read(t);
      if (o.by == By::scores && end(t) == t + 1) carry_to(t + 1);
    }
    out[1] = S[T], out[2] = z[T];
    if (o.anew != Anew::nothing)
      for (std::size_t t = 0; t < T; ++t) read_anew(t);
    S.resize(2 * T + 2), z.resize(2 * T + 2);  // the second half: their cotangents
    dS(T) = in.gS, dz(T) = in.gz;
    for (std::size_t t = 0; t < T; ++t) adjoint_of_read(t);
    for (std::size_t gradient : {4, 5}) out[gradient].resize(T * D);
    for (std::size_t t = T; t-- > 0;) {
      if (o.by != By::scores) carry_back_to(t);
      adjoint_of_write(t);
      if (o.by == By::scores && start(t) == t) carry_back_to(t);
    }
    out[6] = dS(0), out[7] = dz(0);
    return out;
  }

 private:
  static constexpr auto one = [](std::size_t) { return F(1); };
  std::size_t start(std::size_t t) const { return t / o.block * o.block; }
  std::size_t end(std::size_t t) const { return std::min(T, start(t) + o.block); }
  bool scored() const { return o.by == By::scores; }
  // Token t reads scores of tokens [first(t), t] and the state before token state(t).
  std::size_t first(std::size_t t) const { return scored() ? start(t) : t + 1; }
  std::size_t state(std::size_t t) const { return scored() ? start(t) : t + 1; }
  // Token s is read through scores by tokens [s, last(s)) and through the state before token last(s) by later ones.
  std::size_t last(std::size_t s) const { return scored() ? end(s) : s; }
  std::vector<F>& dS(std::size_t i) { return S[T + 1 + i]; }
  std::vector<F>& dz(std::size_t i) { return z[T + 1 + i]; }

  F over(F x, std::size_t t) const {
    if (is_cut(t)) return 0;
    const F divisor = den[t] + epsilon_;
    return o.quotient == Quotient::reciprocal ? x * (1 / divisor) : x / divisor;
  }
  bool is_cut(std::size_t t) const { return !(std::fabs(den[t]) > static_cast<F>(1e-10)); }

  void carry_to(std::size_t i) {
    const std::size_t from = o.by == By::prefix ? 0 : o.by == By::running ? i - 1 : start(i - 1);
    S[i].resize(D * D), z[i].resize(D);
    for (std::size_t p = 0; p < D; ++p) {
      const auto k = [&](std::size_t j) { return j == 0 ? F(1) : in.k[(from + j - 1) * D + p]; };
      z[i][p] = total<F>(o, 1 + i - from, k, [&](std::size_t j) { return j == 0 ? z[from][p] : F(1); });
      for (std::size_t c = 0; c < D; ++c)
        S[i][p * D + c] = total<F>(o, 1 + i - from, k, [&](std::size_t j) {
          return j == 0 ? S[from][p * D + c] : in.v[(from + j - 1) * D + c];
        });
    }
  }

  void read(std::size_t t) {
    const std::vector<F>&state_S = S[state(t)], &state_z = z[state(t)];
    const std::size_t s0 = first(t), n = t + 1 - s0;
    const F* q = &in.q[t * D];
    std::vector<F> a(n);
    for (std::size_t s = 0; s < n; ++s)
      a[s] = total<F>(
          o, D, [&](std::size_t p) { return q[p]; }, [&](std::size_t p) { return in.k[(s0 + s) * D + p]; });
    den[t] = total<F>(
        o, n, [&](std::size_t s) { return a[s]; }, one, D, [&](std::size_t p) { return q[p]; },
        [&](std::size_t p) { return state_z[p]; });
    A[t] = a, L[t].assign(q, q + D), M[t].assign(&in.gy[t * D], &in.gy[t * D] + D);
    if (o.early) {
      for (F& x : A[t]) x = over(x, t);
      for (F& x : L[t]) x = over(x, t);
    } else {
      for (F& x : M[t]) x = over(x, t);
    }
    for (std::size_t c = 0; c < D; ++c) {
      const F num = total<F>(
          o, n, [&](std::size_t s) { return A[t][s]; }, [&](std::size_t s) { return in.v[(s0 + s) * D + c]; }, D,
          [&](std::size_t p) { return L[t][p]; }, [&](std::size_t p) { return state_S[p * D + c]; });
      num_.push_back(num);
      out[0].push_back(o.early ? num : over(num, t));
    }
    y_ = out[0];
  }

  // z_t from the last token to the first, and q . z_t from the last coordinate.
  void read_anew(std::size_t t) {
    const Order reverse{.name = "", .sum = Sum::reverse};
    std::vector<F> z_t(D);
    for (std::size_t p = 0; p < D; ++p)
      z_t[p] = total<F>(reverse, t + 2, one, [&](std::size_t j) { return j == 0 ? in.z0[p] : in.k[(j - 1) * D + p]; });
    const auto q = [&](std::size_t p) { return in.q[t * D + p]; };
    den[t] = total<F>(reverse, D, q, [&](std::size_t p) { return z_t[p]; });
    for (std::size_t c = 0; c < D; ++c) M[t][c] = over(in.gy[t * D + c], t);
    if (o.anew == Anew::den_and_y)
      for (std::size_t c = 0; c < D; ++c) y_[t * D + c] = over(num_[t * D + c], t);
  }

  void adjoint_of_read(std::size_t t) {
    const std::vector<F>&state_S = S[state(t)], &state_z = z[state(t)];
    const std::size_t s0 = first(t), n = t + 1 - s0;
    std::vector<F> dA(n), dL(D);  // before the division where that comes first
    const auto m = [&](std::size_t c) { return M[t][c]; };
    for (std::size_t s = 0; s < n; ++s)
      dA[s] = total<F>(o, D, m, [&](std::size_t c) { return in.v[(s0 + s) * D + c]; });
    for (std::size_t p = 0; p < D; ++p) dL[p] = total<F>(o, D, m, [&](std::size_t c) { return state_S[p * D + c]; });
    dden[t] = adjoint_of_den(t, dA, dL);
    for (std::size_t s = 0; s < n; ++s) dA[s] = (o.early ? over(dA[s], t) : dA[s]) + dden[t];
    if (o.early)
      for (F& x : dL) x = over(x, t);
    for (std::size_t p = 0; p < D; ++p) {
      const auto rest = [&](std::size_t i) { return i == 0 ? dL[p] : state_z[p]; };
      out[3].push_back(total<F>(
          o, n, [&](std::size_t s) { return dA[s]; }, [&](std::size_t s) { return in.k[(s0 + s) * D + p]; }, 2, rest,
          [&](std::size_t i) { return i == 0 ? F(1) : dden[t]; }));
    }
    da.push_back(dA);
  }

  F adjoint_of_den(std::size_t t, const std::vector<F>& dA, const std::vector<F>& dL) {
    const F* g = &in.gy[t * D];
    const F* y = &y_[t * D];
    if (o.early)
      return -over(total<F>(
                       o, dA.size(), [&](std::size_t s) { return dA[s]; }, [&](std::size_t s) { return A[t][s]; }, D,
                       [&](std::size_t p) { return dL[p]; }, [&](std::size_t p) { return L[t][p]; }),
                   t);
    const auto y_at = [&](std::size_t c) { return y[c]; };
    if (o.den_adjoint == DenAdjoint::of_dnum)
      return -total<F>(
          o, D, [&](std::size_t c) { return M[t][c]; }, y_at);
    const auto g_at = [&](std::size_t c) { return g[c]; };
    if (o.den_adjoint == DenAdjoint::of_quotient)
      return -total<F>(o, D, g_at, [&](std::size_t c) { return over(y[c], t); });
    return -over(total<F>(o, D, g_at, y_at), t);
  }

  void carry_back_to(std::size_t i) {
    const std::size_t to = o.by == By::prefix ? T : o.by == By::running ? i + 1 : end(i);
    dS(i).resize(D * D), dz(i).resize(D);
    for (std::size_t p = 0; p < D; ++p) {
      dz(i)[p] = total<F>(
          o, 1 + to - i, [&](std::size_t j) { return j == 0 ? F(1) : in.q[(i + j - 1) * D + p]; },
          [&](std::size_t j) { return j == 0 ? dz(to)[p] : dden[i + j - 1]; });
      for (std::size_t c = 0; c < D; ++c)
        dS(i)[p * D + c] = total<F>(
            o, 1 + to - i, [&](std::size_t j) { return j == 0 ? F(1) : L[i + j - 1][p]; },
            [&](std::size_t j) { return j == 0 ? dS(to)[p * D + c] : M[i + j - 1][c]; });
    }
  }

  void adjoint_of_write(std::size_t s) {
    const std::vector<F>&R = dS(last(s)), &r = dz(last(s));
    const std::size_t n = last(s) - s;
    const auto at = [&](std::size_t j) { return s - first(s + j); };  // s among the scores of token s + j
    for (std::size_t p = 0; p < D; ++p) {
      const F* v = &in.v[s * D];
      out[4][s * D + p] = total<F>(
          o, n, [&](std::size_t j) { return da[s + j][at(j)]; }, [&](std::size_t j) { return in.q[(s + j) * D + p]; },
          D + 1, [&](std::size_t c) { return c < D ? R[p * D + c] : r[p]; },
          [&](std::size_t c) { return c < D ? v[c] : F(1); });
      out[5][s * D + p] = total<F>(
          o, n, [&](std::size_t j) { return A[s + j][at(j)]; }, [&](std::size_t j) { return M[s + j][p]; }, D,
          [&](std::size_t i) { return R[i * D + p]; }, [&](std::size_t i) { return in.k[s * D + i]; });
    }
  }

  const Problem<F>& in;
  const Order& o;
  std::size_t T, D;
  F epsilon_;
  std::vector<std::vector<F>> S, z, A, L, M,
      da;                              // A, L: scores and query, divided if early; M: cotangent, divided if not
  std::vector<F> den, dden, num_, y_;  // y_: as the adjoint has it
  Answer<F> out;
};

// Rounds what is handed from piece to piece; the identity for a correct kernel.
template <class F>
using Carry = F (*)(F);

template <class F>
Problem<F> piece_of(const Problem<F>& p, std::size_t first, std::size_t size, const std::vector<F>& S0,
                    const std::vector<F>& z0) {
  const auto rows = [&](const std::vector<F>& x) {
    return std::vector<F>(x.begin() + first * p.D, x.begin() + (first + size) * p.D);
  };
  return {
      size, p.D, rows(p.q), rows(p.k), rows(p.v), S0, z0, rows(p.gy), std::vector<F>(p.D * p.D), std::vector<F>(p.D)};
}

template <class F>
Answer<F> in_pieces(const Problem<F>& p, const Order& o, Carry<F> carry, F epsilon) {
  std::vector<Problem<F>> pieces;
  std::vector<F> S = p.S0, z = p.z0;
  Answer<F> whole;
  for (std::size_t first = 0; first < p.T; first += o.piece) {
    pieces.push_back(piece_of(p, first, std::min(o.piece, p.T - first), S, z));
    const Answer<F> part = Evaluation<F>(pieces.back(), o, epsilon).run();
    whole[0].insert(whole[0].end(), part[0].begin(), part[0].end());
    S = part[1], z = part[2];
    if (first + o.piece < p.T)
      for (std::vector<F>* state : {&S, &z}) std::transform(state->begin(), state->end(), state->begin(), carry);
  }
  whole[1] = S, whole[2] = z, whole[6] = p.gS, whole[7] = p.gz;
  for (std::size_t i = pieces.size(); i-- > 0;) {
    pieces[i].gS = whole[6], pieces[i].gz = whole[7];
    const Answer<F> part = Evaluation<F>(pieces[i], o, epsilon).run();
    for (std::size_t j : {3, 4, 5}) whole[j].insert(whole[j].begin(), part[j].begin(), part[j].end());
    whole[6] = part[6], whole[7] = part[7];
  }
  return whole;
}

template <class F>
Answer<F> evaluated(
    const Problem<F>& p, const Order& o, F epsilon = static_cast<F>(1e-20), Carry<F> carry = [](F x) { return x; }) {
  return o.piece == 0 ? Evaluation<F>(p, o, epsilon).run() : in_pieces(p, o, carry, epsilon);
}

// The 23 orders that the oracle must not refuse.
inline const std::vector<Order>& orders() {
  static const std::vector<Order> all{
      {.name = "looped"},
      {.name = "looped, fused", .sum = Sum::fused, .den_adjoint = DenAdjoint::of_quotient},
      {.name = "looped, reverse, reciprocal", .sum = Sum::reverse, .quotient = Quotient::reciprocal},
      {.name = "looped, pairwise, queries divided", .sum = Sum::pairwise, .early = true},
      {.name = "looped, wide sums", .sum = Sum::wide, .den_adjoint = DenAdjoint::of_dnum},
      {.name = "cumsum", .by = By::prefix},
      {.name = "cumsum, reverse", .by = By::prefix, .sum = Sum::reverse, .den_adjoint = DenAdjoint::of_quotient},
      {.name = "cumsum, pairwise", .by = By::prefix, .sum = Sum::pairwise, .den_adjoint = DenAdjoint::of_dnum},
      {.name = "cumsum, sums of 4", .by = By::prefix, .sum = Sum::blocks, .sum_block = 4},
      {.name = "cumsum, compensated", .by = By::prefix, .sum = Sum::compensated},
      {.name = "einsum", .by = By::scores},
      {.name = "einsum, normalised scores", .by = By::scores, .sum = Sum::pairwise, .early = true},
      {.name = "einsum, normalised by reciprocal",
       .by = By::scores,
       .quotient = Quotient::reciprocal,
       .early = true,
       .flat = true},
      {.name = "einsum, random trees", .by = By::scores, .sum = Sum::random_tree, .flat = true},
      {.name = "chunked 2, autograd", .by = By::scores, .block = 2, .den_adjoint = DenAdjoint::of_quotient},
      {.name = "chunked 3, fused, one accumulator", .by = By::scores, .sum = Sum::fused, .block = 3, .flat = true},
      {.name = "chunked 4, sums of 2",
       .by = By::scores,
       .sum = Sum::blocks,
       .block = 4,
       .quotient = Quotient::reciprocal},
      {.name = "chunked 5, sums of 3",
       .by = By::scores,
       .sum = Sum::blocks,
       .sum_block = 3,
       .block = 5,
       .den_adjoint = DenAdjoint::of_dnum},
      {.name = "chunked 3 in pieces of 4, sums of 8",
       .by = By::scores,
       .sum = Sum::blocks,
       .sum_block = 8,
       .block = 3,
       .piece = 4},
      {.name = "looped in pieces of 3, wide sums", .sum = Sum::wide, .early = true, .piece = 3},
      {.name = "looped, den anew", .anew = Anew::den},
      {.name = "cumsum, den anew, -(g/den).y", .by = By::prefix, .den_adjoint = DenAdjoint::of_dnum, .anew = Anew::den},
      {.name = "chunked 3, den and y anew",
       .by = By::scores,
       .block = 3,
       .quotient = Quotient::reciprocal,
       .anew = Anew::den_and_y},
  };
  return all;
}

}  // namespace fractus::oracle::linear_attention
