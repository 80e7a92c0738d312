// The experts of a mixture and their adjoint, once, over any number type. contracts/moe.h has the formulas; which
// experts a token has, and with which weights, is the gate's (oracle/moe_gate.h).
//
// An expert is two affine maps with an activation between them. Of a map y = s p + b with p = (x V) U^T, the adjoint is
//
//   db = sum_t dy      ds = sum_t dy . p      dp = s dy      dU = dp^T (x V)      dV = x^T (dp U)      dx = (dp U) V^T
//
// and of y = x W + b it is dW = x^T dy, dx = dy W^T. The sums are over the tokens that chose the expert: what nobody
// chose has a gradient of exactly 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "oracle/dense.h"
#include "oracle/parallel.h"

namespace fractus::oracle::moe {

// x -> x W + b, or s (x V) U^T + b: W (in,out), V (in,r), U (out,r).
template <class R>
struct Map {
  std::optional<Input<R>> W, V, U;
  R scale{1};
  Row<R> bias;

  bool low_rank() const { return !W.has_value(); }
  // Terms that a kernel adds last: it may run on over all experts of a token in one sum.
  std::size_t summed_forward() const { return low_rank() ? U->columns() : W->rows(); }
  std::size_t summed_backward() const { return low_rank() ? V->columns() : W->columns(); }
};

template <class R>
struct Expert {
  Map<R> first, second;
};

template <class R>
struct Mapped {
  std::optional<Dense<R>> inner, product;  // x V and (x V) U^T, of low rank only
  Dense<R> y;
};

template <class R>
Mapped<R> apply(const Map<R>& map, const Dense<R>& x) {
  std::optional<Dense<R>> inner;
  if (map.low_rank()) inner = open_times(x, *map.V);
  Dense<R> product = inner ? open_times_transposed(*inner, *map.U) : open_times(x, *map.W);
  Dense<R> y(x.rows(), product.columns());
  for (std::size_t t = 0; t < x.rows(); ++t) {
    Row<R> row = product.row(t);
    if (map.low_rank()) {
      Row<R> scaled(row.size());
      add_product(scaled, map.scale, row);
      row = scaled;
    }
    add(row, map.bias);
    y.set_row(t, row);
  }
  if (!map.low_rank()) return {std::nullopt, std::nullopt, std::move(y)};
  return {std::move(inner), std::move(product), std::move(y)};
}

template <class R>
using Summed = decltype(transposed_times(std::declval<const Dense<R>&>(), std::declval<const Dense<R>&>(), 1));

template <class R>
struct MapGradients {
  std::optional<Summed<R>> W, V, U;
  R scale{0};
  Row<R> bias;
  Dense<R> x;
};

template <class R>
MapGradients<R> pull_back(const Map<R>& map, const Dense<R>& x, const Mapped<R>& mapped, const Dense<R>& dy) {
  const std::size_t rows = dy.rows(), columns = dy.columns();
  MapGradients<R> result{std::nullopt, std::nullopt, std::nullopt, R(0), Row<R>(columns), Dense<R>(0, 0)};
  for (std::size_t t = 0; t < rows; ++t) add(result.bias, dy.row(t));
  if (!map.low_rank()) {
    result.W = transposed_times(x, dy, 1);
    result.x = open_times_transposed(dy, *map.W);
    return result;
  }
  Dense<R> dp(rows, columns);
  for (std::size_t t = 0; t < rows; ++t) {
    Row<R> row(columns);
    add_product(row, map.scale, dy.row(t));
    dp.set_row(t, row);
    result.scale = result.scale + dot(dy.row(t), mapped.product->row(t));
  }
  // A kernel may sum the elements of s U V^T times their gradient, or take all tokens and columns as one sum.
  may_add(result.scale, columns * std::max(rows, x.columns()));
  const Dense<R> inner = open_times(dp, *map.U);
  result.U = transposed_times(dp, *mapped.inner, 1);
  result.V = transposed_times(x, inner, 1);
  result.x = open_times_transposed(inner, *map.V);
  return result;
}

// An activation is a function from R to {value, slope}, as gelu.h has it.
template <class R>
struct Pass {
  Mapped<R> first;
  Dense<R> active, slope;
  Mapped<R> second;
};

template <class R, class Activation>
Pass<R> forward(const Expert<R>& expert, const Dense<R>& x, const Activation& activation) {
  Mapped<R> first = apply(expert.first, x);
  const std::size_t rows = x.rows(), columns = first.y.columns();
  Dense<R> active(rows, columns), slope(rows, columns);
  for (std::size_t t = 0; t < rows; ++t) {
    const Row<R> given = first.y.row(t);
    Row<R> values(columns), slopes(columns);
    for (std::size_t f = 0; f < columns; ++f) {
      const auto [value, derivative] = activation(given.get(f));
      values.set(f, value);
      slopes.set(f, derivative);
    }
    active.set_row(t, values);
    slope.set_row(t, slopes);
  }
  Mapped<R> second = apply(expert.second, active);
  return {std::move(first), std::move(active), std::move(slope), std::move(second)};
}

template <class R>
struct ExpertGradients {
  MapGradients<R> first, second;  // first.x is that of the rows
};

template <class R>
ExpertGradients<R> pull_back(const Expert<R>& expert, const Dense<R>& x, const Pass<R>& pass, const Dense<R>& dy) {
  MapGradients<R> second = pull_back(expert.second, pass.active, pass.second, dy);
  Dense<R> inner(dy.rows(), pass.active.columns());
  for (std::size_t t = 0; t < dy.rows(); ++t) {
    const Row<R> from = second.x.row(t), slope = pass.slope.row(t);
    Row<R> row(from.size());
    // Whatever a kernel contracts first, this much it has as a number of its own: b1's gradient is a sum of it.
    for (std::size_t f = 0; f < row.size(); ++f) row.set(f, computed(R(from.get(f) * slope.get(f))));
    inner.set_row(t, row);
  }
  MapGradients<R> first = pull_back(expert.first, x, pass.first, inner);
  return {std::move(first), std::move(second)};
}

template <class R>
using Experts = std::function<Expert<R>(std::size_t)>;  // by number; asked from several threads at once

// By token: some experts, and their weights in that order.
using Chosen = std::vector<std::vector<std::size_t>>;
template <class R>
using Weights = std::vector<std::vector<R>>;

// What each expert makes of the tokens that ask for it.
template <class R>
struct Passes {
  std::vector<std::vector<std::size_t>> tokens;  // by expert, ascending
  std::vector<std::optional<Dense<R>>> rows;     // of x, for those tokens
  std::vector<std::optional<Pass<R>>> passes;    // absent where nobody asks

  std::size_t position(std::size_t token, std::size_t expert) const {
    const auto& list = tokens[expert];
    return static_cast<std::size_t>(std::lower_bound(list.begin(), list.end(), token) - list.begin());
  }
  // expert_e(x_t), for a token that asked for e
  Row<R> output(std::size_t token, std::size_t expert) const {
    return passes[expert]->second.y.row(position(token, expert));
  }
};

// `asked` may hold more experts than a token is given in the end.
template <class R, class Activation>
Passes<R> forward(const Experts<R>& experts, std::size_t count, const Dense<R>& x, const Chosen& asked,
                  const Activation& activation, int threads) {
  Passes<R> result;
  result.tokens.resize(count);
  result.rows.resize(count);
  result.passes.resize(count);
  for (std::size_t t = 0; t < asked.size(); ++t)
    for (const std::size_t e : asked[t]) result.tokens[e].push_back(t);
  for_each(count, threads, [&](std::size_t e) {
    const std::vector<std::size_t>& tokens = result.tokens[e];
    if (tokens.empty()) return;
    result.rows[e].emplace(tokens.size(), x.columns());
    for (std::size_t i = 0; i < tokens.size(); ++i) result.rows[e]->set_row(i, x.row(tokens[i]));
    result.passes[e] = forward(experts(e), *result.rows[e], activation);
  });
  return result;
}

// sum over the chosen of weight_e expert_e(x_t). A kernel may have one sum over all of the token's experts at once:
// `summed` terms of each (Map::summed_forward).
template <class R>
Row<R> mixed(const Passes<R>& passes, std::size_t token, const std::vector<std::size_t>& chosen,
             const std::vector<R>& weights, std::size_t summed) {
  Row<R> out;
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    const Row<R> from = passes.output(token, chosen[s]);
    if (s == 0) out = Row<R>(from.size());
    add_product(out, weights[s], from);
  }
  if (!chosen.empty()) may_add(out, (chosen.size() - 1) * summed);
  return out;
}

template <class R>
struct Pulled {
  Dense<R> x;
  Weights<R> weights;
};

// Given what each token chose, a part of what it asked for, and the cotangents of out: the gradients of x and of the
// weights. Those of each expert that was chosen go to `take(e, gradients)`, from several threads at once.
template <class R, class Take>
Pulled<R> pull_back(const Experts<R>& experts, const Passes<R>& passes, const Chosen& chosen, const Weights<R>& weights,
                    const Dense<R>& g, std::size_t columns, int threads, const Take& take) {
  const std::size_t count = passes.passes.size(), tokens = chosen.size();
  // The slot of the token's choice in which the expert is, or none.
  const auto slot_of = [&](std::size_t token, std::size_t e) {
    return static_cast<std::size_t>(std::find(chosen[token].begin(), chosen[token].end(), e) - chosen[token].begin());
  };
  std::vector<std::optional<Dense<R>>> dx(count);
  std::vector<std::size_t> summed(count);
  for_each(count, threads, [&](std::size_t e) {
    const std::vector<std::size_t>& its = passes.tokens[e];
    bool any = false;
    Dense<R> dy(its.size(), g.columns());
    for (std::size_t i = 0; i < its.size(); ++i) {
      const std::size_t slot = slot_of(its[i], e);
      if (slot == chosen[its[i]].size()) continue;  // a row of zeros
      any = true;
      Row<R> row(g.columns());
      add_product(row, weights[its[i]][slot], g.row(its[i]));
      dy.set_row(i, row);
    }
    if (!any) return;
    const Expert<R> expert = experts(e);
    ExpertGradients<R> gradients = pull_back(expert, *passes.rows[e], *passes.passes[e], dy);
    dx[e] = std::move(gradients.first.x);
    summed[e] = expert.first.summed_backward();
    take(e, gradients);
  });

  Pulled<R> result{Dense<R>(tokens, columns), Weights<R>(tokens)};
  for_each(tokens, threads, [&](std::size_t t) {
    Row<R> sum(columns);
    for (const std::size_t e : chosen[t]) {
      add(sum, dx[e]->row(passes.position(t, e)));
      result.weights[t].push_back(dot(g.row(t), passes.output(t, e)));
    }
    if (!chosen[t].empty()) may_add(sum, (chosen[t].size() - 1) * summed[chosen[t].front()]);
    result.x.set_row(t, sum);
  });
  return result;
}

}  // namespace fractus::oracle::moe
