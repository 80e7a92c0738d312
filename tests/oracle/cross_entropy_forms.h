// Known forms of cross entropy from the logits on, as templates over a number type, each as its author would write it:
// dense, in chunks of rows that the adjoint computes anew, and online over blocks of the vocabulary. Equality with the
// definition is then equality of functions.
#pragma once

#include <algorithm>
#include <vector>

#include "oracle/cross_entropy.h"

namespace fractus::oracle::cross_entropy {

template <class R>
struct Problem {
  Dense<Exponent<R>> x;
  std::vector<std::size_t> targets;
  R g;
};

template <class R>
FromLogits<R> definition(const Problem<R>& in, Probability probability = Probability::exponential) {
  return from_logits<R>(in.x, in.targets, std::optional<R>(in.g), {}, 1, probability);
}

template <class R>
Row<Exponent<R>> shifted_row(const Dense<Exponent<R>>& x, std::size_t n) {
  Row<Exponent<R>> y = x.row(n);
  const Exponent<R> a = largest(y);
  for (std::size_t i = 0; i < y.size(); ++i) y.set(i, y.get(i) - a);
  return y;
}

// The faults that forms of this kernel are prone to.
enum class Slip { none, no_rescaling, lost_tail, one_hot_of_last_chunk };

// Rows in chunks: the loss summed up chunk by chunk, and each chunk's p computed again in the adjoint.
template <class R>
FromLogits<R> chunked(const Problem<R>& in, std::size_t chunk, Slip slip = Slip::none) {
  const std::size_t N = in.targets.size(), V = in.x.columns();
  const R count(static_cast<int>(N));
  Exponent<R> sum(0);
  FromLogits<R> result;
  result.dx.emplace(N, V);
  for (std::size_t first = 0; first < N; first += chunk) {
    const std::size_t end = std::min(N, first + chunk);
    Exponent<R> part(0);
    for (std::size_t n = first; n < end; ++n) {
      const Row<Exponent<R>> y = shifted_row<R>(in.x, n);
      R s(0);
      for (std::size_t i = 0; i < V; ++i) s = s + exp_of(y.get(i));
      part = part + (log_of(s) - y.get(in.targets[n]));
    }
    sum = sum + part;
  }
  result.loss = sum / count;
  const std::size_t last = (N - 1) / chunk * chunk;
  for (std::size_t n = 0; n < N; ++n) {
    const Row<Exponent<R>> y = shifted_row<R>(in.x, n);
    R s(0);
    for (std::size_t i = 0; i < V; ++i) s = s + exp_of(y.get(i));
    for (std::size_t i = 0; i < V; ++i) {
      const bool hot = i == in.targets[n] && !(slip == Slip::one_hot_of_last_chunk && n >= last);
      const R p_over_count = exp_of(y.get(i)) / s * in.g / count;
      result.dx->set(n, i, hot ? p_over_count - in.g / count : p_over_count);
    }
  }
  return result;
}

// The vocabulary in blocks, with a running maximum a and sum s in units of exp(a); p from log sum exp + a.
template <class R>
FromLogits<R> online(const Problem<R>& in, std::size_t block, Slip slip = Slip::none) {
  const std::size_t N = in.targets.size(), V = in.x.columns();
  const R count(static_cast<int>(N));
  Exponent<R> sum(0);
  FromLogits<R> result;
  result.dx.emplace(N, V);
  for (std::size_t n = 0; n < N; ++n) {
    Exponent<R> a = in.x.get(n, 0);
    R s(0);
    for (std::size_t first = 0; first < V; first += block) {
      const std::size_t end = std::min(V, first + block);
      if (slip == Slip::lost_tail && end - first < block) continue;
      Exponent<R> next = a;
      for (std::size_t i = first; i < end; ++i) next = larger(next, in.x.get(n, i));
      if (slip != Slip::no_rescaling) s = s * exp_of(a - next);
      a = next;
      for (std::size_t i = first; i < end; ++i) s = s + exp_of(in.x.get(n, i) - a);
    }
    const Exponent<R> lse = log_of(s) + a;
    sum = sum + (lse - in.x.get(n, in.targets[n]));
    for (std::size_t i = 0; i < V; ++i) {
      const R p = exp_of(in.x.get(n, i) - lse);
      result.dx->set(n, i, (i == in.targets[n] ? p - R(1) : p) * (in.g / count));
    }
  }
  result.loss = sum / count;
  return result;
}

}  // namespace fractus::oracle::cross_entropy
