// The four known forms of linear attention as templates over a number type without rounding, each as its author would
// write it: `looped`, `einsum`, `cumsum` and `chunked`. Equality with the definition is then equality of functions.
#pragma once

#include <algorithm>
#include <vector>

#include "oracle/linear_attention.h"

namespace fractus::oracle::linear_attention {

template <class R>
R quotient_of(const R& num, const R& den) {
  return num / (den + power_of_ten<R>(epsilon_exponent));
}

template <class R>
R dot_of(const Row<R>& x, const Row<R>& y) {
  R sum(0);
  for (std::size_t i = 0; i < x.size(); ++i) sum = sum + x.get(i) * y.get(i);
  return sum;
}

template <class R>
struct State {
  Matrix<R> S;
  Row<R> z;

  void write(const Row<R>& k, const Row<R>& v) {
    for (std::size_t p = 0; p < z.size(); ++p) {
      z.set(p, z.get(p) + k.get(p));
      for (std::size_t c = 0; c < z.size(); ++c) S[p].set(c, S[p].get(c) + k.get(p) * v.get(c));
    }
  }
  R read(const Row<R>& q, std::size_t c) const {
    R sum(0);
    for (std::size_t p = 0; p < z.size(); ++p) sum = sum + q.get(p) * S[p].get(c);
    return sum;
  }
};

template <class R>
Row<R> read_row(const State<R>& state, const Row<R>& q) {
  Row<R> y(q.size());
  const R den = dot_of(q, state.z);
  for (std::size_t c = 0; c < q.size(); ++c) y.set(c, quotient_of(state.read(q, c), den));
  return y;
}

// One token at a time.
template <class R>
Outputs<R> looped(const Inputs<R>& in, bool exclusive = false) {
  State<R> state{in.S0, in.z0};
  Matrix<R> y;
  for (std::size_t t = 0; t < in.q.size(); ++t) {
    if (exclusive) y.push_back(read_row(state, in.q[t]));  // the fault of a token that does not see itself
    state.write(in.k[t], in.v[t]);
    if (!exclusive) y.push_back(read_row(state, in.q[t]));
  }
  return {y, state.S, state.z};
}

// y of tokens [first, end) from the state before them, through the (t,s) scores with s <= t.
template <class R>
void read_by_scores(const Inputs<R>& in, const State<R>& before, std::size_t first, std::size_t end, Matrix<R>& y) {
  for (std::size_t t = first; t < end; ++t) {
    std::vector<R> scores;
    R den = dot_of(in.q[t], before.z);
    for (std::size_t s = first; s <= t; ++s) {
      scores.push_back(dot_of(in.q[t], in.k[s]));
      den = den + scores.back();
    }
    Row<R> row(in.z0.size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      R num = before.read(in.q[t], c);
      for (std::size_t s = first; s <= t; ++s) num = num + scores[s - first] * in.v[s].get(c);
      row.set(c, quotient_of(num, den));
    }
    y.push_back(row);
  }
}

// The whole sequence by scores; the state at the end in one sum.
template <class R>
Outputs<R> einsum(const Inputs<R>& in) {
  State<R> state{in.S0, in.z0};
  Matrix<R> y;
  read_by_scores(in, state, 0, in.q.size(), y);
  for (std::size_t s = 0; s < in.q.size(); ++s) state.write(in.k[s], in.v[s]);
  return {y, state.S, state.z};
}

// All states at once: prefix sums of the outer products by doubling (Hillis and Steele 1986), then the carry added.
template <class R>
Outputs<R> cumsum(const Inputs<R>& in) {
  const std::size_t T = in.q.size(), D = in.z0.size();
  if (T == 0) return {{}, in.S0, in.z0};
  std::vector<State<R>> states(T, State<R>{zero_matrix<R>(D, D), Row<R>(D)});
  for (std::size_t t = 0; t < T; ++t) states[t].write(in.k[t], in.v[t]);
  const auto add_to = [D](State<R>& x, const Matrix<R>& S, const Row<R>& z) {
    add(x.z, z);
    for (std::size_t p = 0; p < D; ++p) add(x.S[p], S[p]);
  };
  for (std::size_t step = 1; step < T; step *= 2)
    for (std::size_t t = T; t-- > step;) add_to(states[t], states[t - step].S, states[t - step].z);
  Matrix<R> y;
  for (std::size_t t = 0; t < T; ++t) {
    add_to(states[t], in.S0, in.z0);
    y.push_back(read_row(states[t], in.q[t]));
  }
  return {y, states.back().S, states.back().z};
}

// Scores inside a block, the state across blocks, updated after the read. The last block may be short.
template <class R>
Outputs<R> chunked(const Inputs<R>& in, std::size_t block, bool lose_tail = false) {
  const std::size_t T = in.q.size();
  State<R> state{in.S0, in.z0};
  Matrix<R> y;
  for (std::size_t first = 0; first < T; first += block) {
    const std::size_t end = std::min(T, first + block);
    read_by_scores(in, state, first, end, y);
    if (lose_tail && end - first < block) continue;  // the fault of a state that whole blocks alone reach
    for (std::size_t s = first; s < end; ++s) state.write(in.k[s], in.v[s]);
  }
  return {y, state.S, state.z};
}

}  // namespace fractus::oracle::linear_attention
