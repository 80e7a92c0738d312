// The gate of a mixture of experts, once, over any number type. contracts/moe_gate.h has the formulas.
//
// For one token: phases -> exponents, gates, and, given a selection, its weights; over all tokens the balance lb. `moe`
// and `block_core` route by the same pieces. The adjoint is the tape's: one for each token, one for lb.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "oracle/companion_functions.h"
#include "oracle/companion_softmax.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle::moe_gate {

inline constexpr int cut_exponent = -10;  // a sum of at most 10^-10 gives way to equal shares

// A kernel may take exp(l - log sum exp l), with a maximum subtracted inside, in the place of exp(l) / sum exp(l).
template <class R>
void may_be_in_logs(std::vector<R>&) {}

// The differences l - max, lse - l are at most 2 L and 2 L + ln E, L the largest |l|, and round, with the product with
// log2(e) where 2^x is used, 3 times each; max + log rounds once, and log 4 times of ln E at most. Together 13 L and
// 8 ln E unit roundoffs of the exponent; 8 of either on numerator and denominator both are more.
template <DType judged>
void may_be_in_logs(std::vector<Companion<judged>>& l) {
  double most = 0;
  for (const Companion<judged>& x : l) most = std::max(most, x.m + x.e);
  const double moved = gamma<judged>(8) * (most + std::log(static_cast<double>(l.size())));
  for (Companion<judged>& x : l) x.e += std::min(moved, unbounded);
}
template <class R>
void may_be_in_logs(std::vector<Taped<R>>& l) {
  std::vector<R> values;
  for (const Taped<R>& x : l) values.push_back(x.value);
  may_be_in_logs(values);
  for (std::size_t e = 0; e < l.size(); ++e) l[e].value = values[e];
}

// kappa / temperature, which a kernel has from up to three numbers of its own type. The quotient is R's own: double's
// would be off by more than what a wider base takes as known.
template <class R>
R steepness_of(double kappa, double temperature) {
  R quotient = R(kappa) / R(temperature);
  may_add(quotient, 1);
  return quotient;
}

// The circular mean of a token's phases, on the circle.
template <class R>
R mean_angle(const std::vector<R>& phases) {
  R sine(0), cosine(0);
  for (const R& phase : phases) {
    sine = sine + sin_of(phase);
    cosine = cosine + cos_of(phase);
  }
  return atan2_of(sine, cosine);
}

// l_e = steepness cos(theta - mu_e)
template <class R>
std::vector<R> exponents(const R& theta, const std::vector<R>& mu, const R& steepness) {
  std::vector<R> l;
  for (const R& one : mu) l.push_back(steepness * cos_of_difference(theta, one));
  may_be_in_logs(l);
  return l;
}

template <class R>
std::vector<R> exponentials(const std::vector<R>& l) {
  std::vector<R> g;
  for (const R& x : l) g.push_back(exp_of(x));
  return g;
}

template <class R>
R sum_of(const std::vector<R>& x) {
  R sum = x.front();
  for (std::size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
  return sum;
}

template <class R>
std::vector<R> equal_shares(std::size_t count) {
  return std::vector<R>(count, R(1) / R(static_cast<int>(count)));
}

// x over their sum.
template <class R>
std::vector<R> shares(const std::vector<R>& x, const R& sum) {
  std::vector<R> result;
  for (const R& one : x) result.push_back(one / sum);
  return result;
}

// Gates of one token. `taken` says which way the cut went; Branch::either: the sum's interval straddles it.
template <class R>
std::vector<R> gates(const std::vector<R>& g, const R& sum, Branch taken) {
  return taken == Branch::cut ? equal_shares<R>(g.size()) : shares(g, sum);
}

// Weights of the chosen, in the order of `chosen`. Their gates over the gates' sum are their g over that of g: what all
// gates are divided by is in neither. A kernel that divides it out first rounds twice more in each.
//
// Where the gates are cut to equal shares the weights are those over their sum too, which rounds more than 1/top_k
// does. The gates of a right selection sum up to 1/E at least, so the contract's cut of that sum is never met.
template <class R>
std::vector<R> weights(const std::vector<R>& g, const std::vector<std::size_t>& chosen, Branch taken) {
  const std::vector<R> all = taken == Branch::cut ? equal_shares<R>(g.size()) : g;
  std::vector<R> those;
  for (const std::size_t e : chosen) {
    those.push_back(all[e]);
    may_add(those.back(), 2);
  }
  return shares(those, sum_of(those));
}

// E sum_e (sums_e / tokens - 1/E)^2, of the gates' sums over all tokens. The difference is part of the definition:
// where experts are used alike it is small and so is its square's error, which that of E sum mean^2 - 1 is not.
template <class R>
R balance(const std::vector<R>& sums, std::size_t tokens) {
  const R count(static_cast<double>(tokens)), experts(static_cast<int>(sums.size()));
  R total(0);
  for (const R& sum : sums) {
    const R away = computed(sum / count - R(1) / experts);
    total = total + away * away;
  }
  return experts * total;
}

// lb of the gates' sums over all tokens and, by expert, what its cotangent sends back to the gate of each of them.
template <DType judged>
struct Balanced {
  Companion<judged> lb;
  std::vector<Companion<judged>> of_gates;
};

template <DType judged>
Balanced<judged> balanced(const std::vector<Companion<judged>>& sums, std::size_t tokens,
                          const Companion<judged>& cotangent) {
  using R = Companion<judged>;
  Tape<R> tape;
  Taped<R>::tape = &tape;
  std::vector<Taped<R>> leaves;
  for (const R& sum : sums) leaves.push_back(Taped<R>::leaf(sum));
  const Taped<R> lb = balance(leaves, tokens);
  std::vector<R> seeds(tape.size());
  seeds[lb.node] = cotangent;
  const std::vector<R> pulled = tape.pull_back(std::move(seeds));
  Taped<R>::tape = nullptr;
  Balanced<judged> result{lb.value, {}};
  for (const Taped<R>& leaf : leaves) result.of_gates.push_back(pulled[leaf.node]);
  return result;
}

// The same of tokens that each have their `gates`, added one after the other.
template <DType judged, class Token>
Balanced<judged> balanced(const std::vector<Token>& tokens, const Companion<judged>& cotangent) {
  std::vector<Companion<judged>> sums = tokens.front().gates;
  for (std::size_t t = 1; t < tokens.size(); ++t)
    for (std::size_t e = 0; e < sums.size(); ++e) sums[e] = sums[e] + tokens[t].gates[e];
  return balanced(sums, tokens.size(), cotangent);
}

// What selections are right for a token. An expert is must-in where fewer than top_k others may be as large, and
// must-out where top_k others certainly are larger (METHODS.md, section 2).
struct Selections {
  std::vector<char> must_in, must_out;
  std::vector<std::size_t> own;  // the definition's: the largest first
  bool in_doubt = false;         // more than one is right

  bool admit(const std::vector<std::size_t>& chosen) const {
    std::vector<char> held(must_in.size());
    for (const std::size_t e : chosen) {
      if (e >= held.size() || held[e] || must_out[e]) return false;
      held[e] = 1;
    }
    for (std::size_t e = 0; e < held.size(); ++e)
      if (must_in[e] && !held[e]) return false;
    return chosen.size() == own.size();
  }
};

// By the exponents l, since exp is monotone: two gates may change places where their exponents, each with its error and
// what exp and a division round, overlap. Where the gates are cut to equal shares, all of them tie.
template <DType judged>
Selections selections(const std::vector<Companion<judged>>& l, std::size_t top_k, Branch taken) {
  const std::size_t E = l.size();
  std::vector<double> low(E), high(E), value(E);
  Selections result{std::vector<char>(E), std::vector<char>(E), {}, false};
  for (std::size_t e = 0; e < E; ++e) {
    value[e] = static_cast<double>(l[e].v);
    const double margin = std::min(
        unbounded, taken == Branch::divide
                       ? (error(l[e]) + gamma<judged>(library_roundings + quotient_roundings + 2)) * (1 + base_slack)
                       : unbounded);
    low[e] = value[e] - margin;
    high[e] = value[e] + margin;
    result.own.push_back(e);
  }
  std::stable_sort(result.own.begin(), result.own.end(), [&](std::size_t a, std::size_t b) { return l[a].v > l[b].v; });
  result.own.resize(top_k);
  std::vector<double> lows = low, highs = high;
  std::sort(lows.begin(), lows.end());
  std::sort(highs.begin(), highs.end());
  std::size_t certain = 0;
  for (std::size_t e = 0; e < E; ++e) {
    // e itself is among those whose high reaches its low, and never among those whose low exceeds its high.
    const auto may_exceed =
        static_cast<std::size_t>(highs.end() - std::lower_bound(highs.begin(), highs.end(), low[e]));
    const auto exceed = static_cast<std::size_t>(lows.end() - std::upper_bound(lows.begin(), lows.end(), high[e]));
    result.must_in[e] = may_exceed <= top_k;
    result.must_out[e] = exceed >= top_k;
    certain += result.must_in[e];
  }
  result.in_doubt = certain < top_k;
  return result;
}

}  // namespace fractus::oracle::moe_gate
