// Which experts a token may be given, with which weights, and what flows back into its phases: moe_gate's pieces, for
// whoever routes by them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "oracle/companion_row.h"
#include "oracle/moe_gate.h"

namespace fractus::oracle::moe {

// Beyond this many right selections what a token is given is undecidable.
inline constexpr std::size_t most_selections = 32;

template <DType judged>
struct Route {
  using R = Companion<judged>;
  std::vector<R> phases, exponentials, gates;
  Branch taken = Branch::divide;
  bool theta_known = false;  // the resultant is certainly not 0
  bool lost = false;         // too many selections are right, or the sum's cut is in doubt
  moe_gate::Selections certain;
  std::vector<std::vector<std::size_t>> selections;  // all that are right, the definition's own first; that where lost

  std::vector<R> weights(const std::vector<std::size_t>& chosen) const {
    return moe_gate::weights(exponentials, chosen, taken);
  }
};

// Every selection that holds all must-in experts and no must-out one, the definition's own first; empty where there are
// more than `most`.
inline std::vector<std::vector<std::size_t>> all_selections(const moe_gate::Selections& certain, std::size_t most) {
  std::vector<std::size_t> held, open;
  for (std::size_t e = 0; e < certain.must_in.size(); ++e) {
    if (certain.must_in[e])
      held.push_back(e);
    else if (!certain.must_out[e])
      open.push_back(e);
  }
  std::vector<std::vector<std::size_t>> found{certain.own};
  if (held.size() >= certain.own.size()) return found;
  const std::size_t wanted = certain.own.size() - held.size();
  std::vector<std::size_t> own = certain.own;
  std::sort(own.begin(), own.end());
  std::vector<char> taken(open.size());  // combinations of `wanted` out of `open`, by the mask of those taken
  std::fill_n(taken.begin(), std::min(wanted, open.size()), 1);
  do {
    std::vector<std::size_t> one = held;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (taken[i]) one.push_back(open[i]);
    std::sort(one.begin(), one.end());
    if (one == own) continue;
    if (found.size() == most) return {};
    found.push_back(std::move(one));
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return found;
}

// The experts of any of them.
inline std::vector<std::size_t> any_of(const std::vector<std::vector<std::size_t>>& selections) {
  std::vector<std::size_t> all;
  for (const auto& selection : selections) all.insert(all.end(), selection.begin(), selection.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// What a form's number is off by, over what it may be; infinity where that is no number.
template <DType judged>
double used_by(double got, const Companion<judged>& x) {
  const double off = magnitude(x.v - static_cast<Base<judged>>(got));
  const double ratio = off == 0 ? 0 : off / (error(x) * (1 + base_slack));
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

template <DType judged>
Route<judged> routed(std::vector<Companion<judged>> phases, const std::vector<double>& mu,
                     const Companion<judged>& steepness, std::size_t top_k) {
  using R = Companion<judged>;
  const std::vector<R> angles(mu.begin(), mu.end());
  const R theta = moe_gate::mean_angle(phases);
  const std::vector<R> l = moe_gate::exponents(theta, angles, steepness);
  Route<judged> route;
  route.phases = std::move(phases);
  route.theta_known = theta.e < unbounded;
  route.exponentials = moe_gate::exponentials(l);
  const R sum = moe_gate::sum_of(route.exponentials);
  route.taken = branch(sum, moe_gate::cut_exponent);
  route.gates = moe_gate::gates(route.exponentials, sum, route.taken);
  if (!route.theta_known || route.taken == Branch::either)
    route.gates.assign(route.gates.size(), R(0, 0, 0, unbounded, 1));
  route.certain = moe_gate::selections(l, top_k, route.taken);
  route.selections = all_selections(route.certain, most_selections);
  route.lost = route.selections.empty() || route.taken == Branch::either || !route.theta_known;
  if (route.lost) route.selections = {route.certain.own};
  return route;
}

// The cotangents of the phases, given those of the gates and of the weights of the chosen.
//
// A kernel has the cotangents of the weights as numbers of its own, and what it does with them is a linear map with
// roundings of its own: f'(c') - f(c) = f(c' - c) + (f' - f)(c'). So what they are multiplied by is closed, as they
// are, and the error of c meets |f| itself, not the terms of f that cancel.
template <DType judged>
Row<Companion<judged>> routed_adjoint(const Route<judged>& route, const std::vector<double>& mu,
                                      const Companion<judged>& steepness, const std::vector<std::size_t>& chosen,
                                      const std::vector<Companion<judged>>& of_gates,
                                      const std::vector<Companion<judged>>& of_weights) {
  using R = Companion<judged>;
  using X = Taped<R>;
  Tape<R> tape;
  X::tape = &tape;
  std::vector<X> phases, angles;
  for (const R& phase : route.phases) phases.push_back(X::leaf(phase));
  for (const double angle : mu) angles.push_back(X(R(angle)));
  const std::vector<X> l = moe_gate::exponents(moe_gate::mean_angle(phases), angles, X(steepness));
  const std::vector<X> g = moe_gate::exponentials(l);
  const std::vector<X> gates = moe_gate::gates(g, moe_gate::sum_of(g), route.taken),
                       weights = moe_gate::weights(g, chosen, route.taken);
  const auto seed = [&](std::vector<R>& seeds, const X& x, const R& cotangent) {
    if (x.node != Tape<R>::constant) seeds[x.node] = seeds[x.node] + cotangent;
  };
  std::vector<R> seeds(tape.size());
  for (std::size_t e = 0; e < of_gates.size(); ++e) seed(seeds, gates[e], of_gates[e]);
  std::vector<R> pulled = tape.pull_back(std::move(seeds));
  Row<R> result(phases.size());
  for (std::size_t p = 0; p < phases.size(); ++p) result.set(p, pulled[phases[p].node]);
  for (std::size_t s = 0; s < of_weights.size(); ++s) {
    seeds.assign(tape.size(), R());
    seed(seeds, weights[s], R(1));
    pulled = tape.pull_back(std::move(seeds));
    const R cotangent = computed(of_weights[s]);
    for (std::size_t p = 0; p < phases.size(); ++p)
      result.set(p, result.get(p) + cotangent * computed(pulled[phases[p].node]));
  }
  X::tape = nullptr;
  return result;
}

}  // namespace fractus::oracle::moe
