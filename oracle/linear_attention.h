// Linear attention and its adjoint, once, over any number type. contracts/linear_attention.h has the formulas.
//
// The adjoint, with g the cotangent of y and G_S, G_z those of the final state (METHODS.md, section 2):
//
//   dnum_t = g_t / den_t                     dden_t = -(g_t . y_t) / den_t
//   dq_t   = S_t dnum_t + z_t dden_t
//   R_t    = G_S + sum_{s>=t} q_s dnum_s^T   r_t = G_z + sum_{s>=t} q_s dden_s
//   dk_t   = R_t v_t + r_t                   dv_t = R_t^T k_t
//   dS0    = R_1                             dz0 = r_1
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "oracle/number.h"
#include "oracle/row.h"

namespace fractus::oracle::linear_attention {

inline constexpr int cut_exponent = -10;      // |den| <= 10^-10 makes the row 0
inline constexpr int epsilon_exponent = -20;  // added to den before it divides

// One group: rows are tokens for q, k, v and key dimensions for S0.
template <class R>
struct Inputs {
  Matrix<R> q, k, v, S0;
  Row<R> z0;
};

template <class R>
struct Cotangents {
  std::optional<Matrix<R>> y;  // absent: nothing flows into y, and the adjoint through it is 0 without a bound to pay
  Matrix<R> S;
  Row<R> z;
};

template <class R>
struct Outputs {
  Matrix<R> y, S;
  Row<R> z;
};

template <class R>
struct Gradients {
  Matrix<R> q, k, v, S0;
  Row<R> z0;
};

// Settles a row that the number type cannot: given the token and the numerator, the branch that the judged kernel took.
// It may answer `either` again; the row then stands for both.
template <class R>
using Settle = std::function<Branch(std::size_t t, const Row<R>& num)>;

template <class R>
struct Result {
  Outputs<R> outputs;
  std::optional<Gradients<R>> gradients;
  std::size_t rows_in_doubt = 0;
};

template <class R>
Row<R> divide(const Row<R>& x, const R& den, Branch branch) {
  if (branch == Branch::cut) return Row<R>(x.size());
  const Row<R> x_over_den = quotient(x, den);
  return branch == Branch::divide ? x_over_den : hull_with_zero(x_over_den);
}

// q (S0 + sum k v) may be regrouped as q S0 + sum (q k) v: the scores q k are contracted over D first, and one
// accumulator then takes both their products with v and the D terms of q S0 (a matrix product with a nonzero initial
// value). Such a path has D more additions than contracting the sum; dq, dk and dv have the same two parts. Hence
// may_add(.., D).
//
// Forward, and the adjoint where cotangents are given. T is the number of rows of q and may be 0. `epsilon` is the
// contract's, unless it is asked what another one would give.
template <class R>
Result<R> evaluate(const Inputs<R>& in, const Cotangents<R>* cotangents, const Settle<R>& settle,
                   const R& epsilon = power_of_ten<R>(epsilon_exponent)) {
  const std::size_t T = in.q.size(), D = in.z0.size();
  const bool through_y = cotangents != nullptr && cotangents->y.has_value();

  Result<R> result;
  Outputs<R>& out = result.outputs;
  out.S = in.S0;
  out.z = in.z0;
  out.y.reserve(T);

  Matrix<R> dq, dnum;
  std::vector<R> dden(T);
  if (cotangents != nullptr) dq = zero_matrix<R>(T, D);
  if (through_y) dnum.reserve(T);

  for (std::size_t t = 0; t < T; ++t) {
    const Row<R>&q = in.q[t], &k = in.k[t], &v = in.v[t];
    add(out.z, k);
    Row<R> num(D);
    for (std::size_t p = 0; p < D; ++p) {
      add_product(out.S[p], k.get(p), v);
      add_product(num, q.get(p), out.S[p]);
    }
    may_add(num, D);
    R den = dot(q, out.z);
    may_add(den, D);
    Branch taken = branch(den, cut_exponent);
    if (taken == Branch::either) {
      ++result.rows_in_doubt;
      taken = settle(t, num);
    }
    const R divisor = den + epsilon;
    out.y.push_back(divide(num, divisor, taken));

    if (through_y) {
      const Row<R>& g = (*cotangents->y)[t];
      dnum.push_back(divide(g, divisor, taken));
      // A row that may be cut has a dden of 0 or that of the quotient, whichever way y went: y needs no hull of its
      // own.
      Row<R> gy(1);
      gy.set(0, dot(g, taken == Branch::either ? quotient(num, divisor) : out.y[t]));
      dden[t] = -divide(gy, divisor, taken).get(0);
      for (std::size_t p = 0; p < D; ++p) dq[t].set(p, dot(out.S[p], dnum[t]) + out.z.get(p) * dden[t]);
      may_add(dq[t], D);
    }
  }
  if (cotangents == nullptr) return result;

  Matrix<R> dk = zero_matrix<R>(T, D), dv = zero_matrix<R>(T, D), dS = cotangents->S;
  Row<R> dz = cotangents->z;
  for (std::size_t t = T; t-- > 0;) {
    if (through_y) {
      add_product(dz, dden[t], in.q[t]);
      for (std::size_t p = 0; p < D; ++p) add_product(dS[p], in.q[t].get(p), dnum[t]);
    }
    for (std::size_t p = 0; p < D; ++p) {
      dk[t].set(p, dot(dS[p], in.v[t]) + dz.get(p));
      add_product(dv[t], in.k[t].get(p), dS[p]);
    }
    may_add(dk[t], D);
    may_add(dv[t], D);
  }
  result.gradients = Gradients<R>{std::move(dq), std::move(dk), std::move(dv), std::move(dS), std::move(dz)};
  return result;
}

}  // namespace fractus::oracle::linear_attention
