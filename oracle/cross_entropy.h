// Cross entropy and its adjoint, once, over any number type. KERNELS.md has the contract:
//
//   x = h W^T      a_n = max_i x_ni      loss = mean_n( log sum_i exp(x_ni - a_n) - (x_n,target - a_n) )
//
// With y = x - a, l_n = log sum_i exp(y_ni) and g the cotangent of the loss, the adjoint is
//
//   p = exp(y - l)      dx = (p - onehot(target)) g/N      dh = dx W      dW = dx^T h
//
// The shift a is a constant: every value of it gives the same loss, so none of its own error is an error of the loss,
// and no derivative passes through it.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "oracle/dense.h"
#include "oracle/softmax_row.h"

namespace fractus::oracle::cross_entropy {

// p is exp(y - l), and also exp(y) / sum exp(y): the same function, but not the same roundings.
enum class Probability { exponential, quotient };

template <class R>
struct FromLogits {
  Exponent<R> loss{};
  std::optional<Dense<R>> dx;
};

// From the logits on; g absent: no adjoint. Logits has rows(), columns() and row(n), a row of Exponent<R>. All targets
// lie in [0, columns()), and there is at least one row.
template <class R, class Logits>
FromLogits<R> from_logits(const Logits& x, const std::vector<std::size_t>& targets, const std::optional<R>& g,
                          const Chain& chain, int threads, Probability probability = Probability::exponential) {
  const std::size_t N = targets.size();
  const R count(static_cast<int>(N));
  FromLogits<R> result;
  if (g) result.dx.emplace(N, x.columns());
  std::vector<Exponent<R>> losses(N);
  for_each(N, threads, [&](std::size_t n) {
    Row<Exponent<R>> y = x.row(n);
    shift(y, largest(y));
    const Row<R> e = exponentials(y);
    const R s = total(e, chain);
    const Exponent<R> l = log_of(s);
    losses[n] = l - y.get(targets[n]);
    if (!g) return;
    Row<R> dx = probability == Probability::quotient ? quotient(e, s) : probabilities(y, l, chain);
    dx.set(targets[n], dx.get(targets[n]) - R(1));
    may_return_sum(dx, y, chain);
    scale(dx, *g / count);
    result.dx->set_row(n, dx);
  });
  Exponent<R> sum(0);
  for (const Exponent<R>& loss : losses) sum = sum + loss;
  result.loss = sum / count;
  return result;
}

template <class R, class Product>
struct Result {
  Exponent<R> loss{};
  std::optional<Product> dh, dW;
};

// The whole; dh and dW where g is given. A kernel may take the one-hot's W from the sum over p W, one addition more.
template <class R>
auto evaluate(const Input<R>& h, const Input<R>& W, const std::vector<std::size_t>& targets, const std::optional<R>& g,
              const Chain& chain, int threads) {
  Result<R, decltype(times_transposed(h, W, threads))> result;
  const FromLogits<R> logits = from_logits<R>(times_transposed(h, W, threads), targets, g, chain, threads);
  result.loss = logits.loss;
  if (!g) return result;
  result.dh = times(*logits.dx, W, chain.additions + 1, threads);
  result.dW = transposed_times(*logits.dx, h, threads);
  return result;
}

}  // namespace fractus::oracle::cross_entropy
