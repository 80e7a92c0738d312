// The attention half of a block and its adjoint, once, over any number type (KERNELS.md, block_core):
//
//   q, k, v = x W + b      q_l, k_l = elu(. + omega_l) + 1      y_l = linear_attention(q_l, k_l, v; S0, z0), by head
//   h1 = h + (sum_l p_l y_l) W_out + b_out, p = softmax(level_logits)      S, z = mean over l of S_l, z_l
//
// S and z are detached: no cotangent reaches them. Rows are tokens, those of one sequence behind each other.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "oracle/feature_map.h"
#include "oracle/linear_attention.h"
#include "oracle/parallel.h"
#include "oracle/projection.h"
#include "oracle/softmax_row.h"

namespace fractus::oracle::block_core {

struct Heads {
  std::size_t B, T, H, L, D;

  std::size_t groups() const { return B * L * H; }
  std::size_t batch(std::size_t g) const { return g / (L * H); }
  std::size_t level(std::size_t g) const { return g / H % L; }
  std::size_t head(std::size_t g) const { return g % H; }
};

template <class R>
struct AttentionWeights {
  std::array<Weights<R>, 3> qkv;  // each (d,d)
  std::array<Row<R>, 3> qkv_bias;
  Weights<R> out;
  Row<R> out_bias, level_logits;
  std::vector<R> offsets;  // omega_l
};

// Of one head of one sequence; empty where there is none.
template <class R>
struct Carry {
  Matrix<R> S;
  Row<R> z;
};

template <class R>
struct Attended {
  std::array<Matrix<R>, 3> qkv;
  std::vector<Matrix<R>> y;  // by level
  Row<R> mix;                // p
  Matrix<R> mixed, h1;
  std::vector<Carry<R>> carry;  // by sequence and head: mean over levels
  std::size_t rows_in_doubt = 0;
};

template <class R>
struct AttentionGradients {
  Matrix<R> x;
  std::array<Matrix<R>, 3> qkv;
  std::array<Row<R>, 3> qkv_bias;
  Matrix<R> out;
  Row<R> out_bias, level_logits;
};

template <class R>
Row<R> part(const Row<R>& x, std::size_t first, std::size_t count) {
  Row<R> result(count);
  for (std::size_t i = 0; i < count; ++i) result.set(i, x.get(first + i));
  return result;
}

// A row as a kernel has it in memory: closed, where a type looks into the sums behind it.
template <class R>
Row<R> stored(const Row<R>& x) {
  return x;
}
template <DType judged>
Row<Companion<judged>> stored(const Row<Companion<judged>>& x) {
  Row<Companion<judged>> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double m = magnitude(x.v[i]);
    result.set(i, {x.v[i], m, 0, std::min(error(x.get(i)), unbounded), m});
  }
  return result;
}

// h + y, where y = x W + b has been computed: h may be what the product's accumulator starts from.
template <class R>
Matrix<R> residual(const Matrix<R>& h, const Matrix<R>& y, std::size_t additions) {
  Matrix<R> result;
  for (std::size_t n = 0; n < h.size(); ++n) {
    Row<R> sum = h[n];
    may_add(sum, additions);
    add(sum, y[n]);
    result.push_back(stored(sum));
  }
  return result;
}

// The rows of q, k and v that one group sees.
template <class R>
linear_attention::Inputs<R> group_inputs(const Heads& heads, std::size_t g, const std::array<Matrix<R>, 3>& qkv,
                                         const R& offset, const std::vector<Carry<R>>& carry) {
  const std::size_t b = heads.batch(g), first = heads.head(g) * heads.D;
  linear_attention::Inputs<R> in{{}, {}, {}, zero_matrix<R>(heads.D, heads.D), Row<R>(heads.D)};
  if (const std::size_t i = b * heads.H + heads.head(g); i < carry.size()) {
    in.S0 = carry[i].S;
    in.z0 = carry[i].z;
  }
  const auto mapped = [&](const Row<R>& x) {
    Row<R> result(heads.D);
    for (std::size_t p = 0; p < heads.D; ++p) result.set(p, feature(R(x.get(first + p) + offset)).value);
    return result;
  };
  for (std::size_t n = b * heads.T; n < (b + 1) * heads.T; ++n) {
    in.q.push_back(mapped(qkv[0][n]));
    in.k.push_back(mapped(qkv[1][n]));
    in.v.push_back(part(qkv[2][n], first, heads.D));
  }
  return in;
}

template <class R>
void put(Row<R>& to, std::size_t first, const Row<R>& x) {
  for (std::size_t i = 0; i < x.size(); ++i) to.set(first + i, x.get(i));
}

// x (B*T,d) is normed h. A row whose |den| lies at the cut stands for both branches.
template <class R>
Attended<R> attend(const Heads& heads, const Matrix<R>& h, const Matrix<R>& x, const AttentionWeights<R>& weights,
                   const std::vector<Carry<R>>& carry, int threads) {
  Attended<R> result;
  for (std::size_t i = 0; i < 3; ++i) result.qkv[i] = project(x, weights.qkv[i], weights.qkv_bias[i], threads);

  std::vector<linear_attention::Result<R>> groups(heads.groups());
  for_each(heads.groups(), threads, [&](std::size_t g) {
    groups[g] =
        linear_attention::evaluate<R>(group_inputs(heads, g, result.qkv, weights.offsets[heads.level(g)], carry),
                                      nullptr, [](std::size_t, const Row<R>&) { return Branch::either; });
  });

  const std::size_t N = x.size(), d = heads.H * heads.D;
  result.y.assign(heads.L, zero_matrix<R>(N, d));
  result.carry.resize(heads.B * heads.H);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const linear_attention::Outputs<R>& out = groups[g].outputs;
    result.rows_in_doubt += groups[g].rows_in_doubt;
    for (std::size_t t = 0; t < heads.T; ++t)
      put(result.y[heads.level(g)][heads.batch(g) * heads.T + t], heads.head(g) * heads.D, out.y[t]);
    Carry<R>& mean = result.carry[heads.batch(g) * heads.H + heads.head(g)];
    if (heads.level(g) == 0) {
      mean = {out.S, out.z};
      continue;
    }
    for (std::size_t p = 0; p < heads.D; ++p) add(mean.S[p], out.S[p]);
    add(mean.z, out.z);
  }
  const R levels(static_cast<int>(heads.L));
  for (Carry<R>& mean : result.carry) {
    for (Row<R>& row : mean.S) row = quotient(row, levels);
    mean.z = quotient(mean.z, levels);
  }

  const Chain chain{heads.L - 1, heads.L - 1};
  Row<R> logits = weights.level_logits;
  shift(logits, largest(logits));
  result.mix = probabilities(logits, R(log_of(total(exponentials(logits), chain))), chain);
  for (std::size_t n = 0; n < N; ++n) {
    Row<R> mixed(d);
    for (std::size_t l = 0; l < heads.L; ++l) add_product(mixed, result.mix.get(l), result.y[l][n]);
    result.mixed.push_back(mixed);
  }
  result.h1 =
      residual(h, project(result.mixed, weights.out, weights.out_bias, threads), weights.out.additions(false) + 1);
  return result;
}

// g is the cotangent of h1; that of h through the residual is g itself and not part of the result.
template <class R>
AttentionGradients<R> attend_adjoint(const Heads& heads, const Matrix<R>& x, const AttentionWeights<R>& weights,
                                     const std::vector<Carry<R>>& carry, const Attended<R>& forward, const Matrix<R>& g,
                                     int threads) {
  const std::size_t N = x.size(), d = heads.H * heads.D;
  AttentionGradients<R> result;
  result.out = weight_gradient(forward.mixed, g, threads);
  result.out_bias = sum_of_rows(g);
  const Matrix<R> dmixed = project_back(g, weights.out, threads);

  // p_l (dp_l - sum_m p_m dp_m), for dp_l = sum_t dmixed_t . y_l,t: levels are much alike, and what is off in dmixed
  // reaches only their differences, y_l less the mixed one. A kernel's own roundings are of the products themselves.
  result.level_logits = Row<R>(heads.L);
  for (std::size_t l = 0; l < heads.L; ++l) {
    R along(0), products(0);
    for (std::size_t n = 0; n < N; ++n) {
      Row<R> difference = stored(forward.y[l][n]);
      add_product(difference, R(-1), stored(forward.mixed[n]));
      along = along + dot(dmixed[n], stored(difference));
      products = products + dot(dmixed[n], forward.y[l][n]) + dot(dmixed[n], forward.mixed[n]);
    }
    may_round_as(along, products);
    result.level_logits.set(l, forward.mix.get(l) * along);
  }

  std::vector<linear_attention::Gradients<R>> groups(heads.groups());
  for_each(heads.groups(), threads, [&](std::size_t group) {
    const std::size_t b = heads.batch(group), first = heads.head(group) * heads.D, l = heads.level(group);
    linear_attention::Cotangents<R> cotangents{Matrix<R>{}, zero_matrix<R>(heads.D, heads.D), Row<R>(heads.D)};
    for (std::size_t n = b * heads.T; n < (b + 1) * heads.T; ++n) {
      Row<R> dy(heads.D);
      add_product(dy, forward.mix.get(l), part(dmixed[n], first, heads.D));
      cotangents.y->push_back(dy);
    }
    linear_attention::Gradients<R> gradients =
        *linear_attention::evaluate<R>(group_inputs(heads, group, forward.qkv, weights.offsets[l], carry), &cotangents,
                                       [](std::size_t, const Row<R>&) { return Branch::either; })
             .gradients;
    for (std::size_t t = 0; t < heads.T; ++t)
      for (std::size_t p = 0; p < heads.D; ++p) {
        const std::size_t n = b * heads.T + t;
        const R q = forward.qkv[0][n].get(first + p) + weights.offsets[l];
        const R k = forward.qkv[1][n].get(first + p) + weights.offsets[l];
        gradients.q[t].set(p, gradients.q[t].get(p) * feature(q).slope);
        gradients.k[t].set(p, gradients.k[t].get(p) * feature(k).slope);
      }
    groups[group] = std::move(gradients);
  });

  std::array<Matrix<R>, 3> dqkv;
  dqkv.fill(zero_matrix<R>(N, d));
  for (std::size_t n = 0; n < N; ++n)
    for (std::size_t head = 0; head < heads.H; ++head)
      for (std::size_t i = 0; i < 3; ++i) {
        Row<R> sum(heads.D);
        for (std::size_t l = 0; l < heads.L; ++l) {
          const linear_attention::Gradients<R>& of = groups[(n / heads.T * heads.L + l) * heads.H + head];
          const Matrix<R>& rows = i == 0 ? of.q : i == 1 ? of.k : of.v;
          add(sum, stored(rows[n % heads.T]));
        }
        put(dqkv[i][n], head * heads.D, sum);
      }

  for (std::size_t i = 0; i < 3; ++i) {
    result.qkv[i] = weight_gradient(x, dqkv[i], threads);
    result.qkv_bias[i] = sum_of_rows(dqkv[i]);
    const Matrix<R> dx = project_back(dqkv[i], weights.qkv[i], threads);
    if (i == 0)
      result.x = dx;
    else
      for (std::size_t n = 0; n < N; ++n) add(result.x[n], dx[n]);
  }
  return result;
}

// On Companions in block_attention.cpp.
extern template Attended<Companion<DType::float32>> attend(const Heads&, const Matrix<Companion<DType::float32>>&,
                                                           const Matrix<Companion<DType::float32>>&,
                                                           const AttentionWeights<Companion<DType::float32>>&,
                                                           const std::vector<Carry<Companion<DType::float32>>>&, int);
extern template AttentionGradients<Companion<DType::float32>> attend_adjoint(
    const Heads&, const Matrix<Companion<DType::float32>>&, const AttentionWeights<Companion<DType::float32>>&,
    const std::vector<Carry<Companion<DType::float32>>>&, const Attended<Companion<DType::float32>>&,
    const Matrix<Companion<DType::float32>>&, int);
extern template Attended<Companion<DType::float64>> attend(const Heads&, const Matrix<Companion<DType::float64>>&,
                                                           const Matrix<Companion<DType::float64>>&,
                                                           const AttentionWeights<Companion<DType::float64>>&,
                                                           const std::vector<Carry<Companion<DType::float64>>>&, int);
extern template AttentionGradients<Companion<DType::float64>> attend_adjoint(
    const Heads&, const Matrix<Companion<DType::float64>>&, const AttentionWeights<Companion<DType::float64>>&,
    const std::vector<Carry<Companion<DType::float64>>>&, const Attended<Companion<DType::float64>>&,
    const Matrix<Companion<DType::float64>>&, int);

}  // namespace fractus::oracle::block_core
