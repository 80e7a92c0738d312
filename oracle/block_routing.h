// How a block routes a chunk: one choice of experts for each sequence, by the angles of its last token.
#pragma once

#include <numbers>
#include <optional>
#include <vector>

#include "oracle/companion_row.h"
#include "oracle/moe_gate.h"

namespace fractus::oracle::block_core {

// Beyond this many right selections a sequence is undecidable.
inline constexpr std::size_t most_selections = 32;

template <DType judged>
struct Route {
  using R = Companion<judged>;
  std::vector<R> phases, gates;
  std::vector<R> exponentials;
  Branch taken = Branch::divide;
  bool lost = false;                                 // too many selections are right, or the sum's cut is in doubt
  std::vector<std::vector<std::size_t>> selections;  // all that are right, the definition's own first
};

// Every selection that holds all must-in experts and no must-out one; empty where there are more than `most`.
inline std::vector<std::vector<std::size_t>> all_selections(const moe_gate::Selections& certain, std::size_t most) {
  std::vector<std::size_t> held, open;
  for (std::size_t e = 0; e < certain.must_in.size(); ++e) {
    if (certain.must_in[e])
      held.push_back(e);
    else if (!certain.must_out[e])
      open.push_back(e);
  }
  const std::size_t wanted = certain.own.size() - held.size();
  std::vector<std::vector<std::size_t>> found{certain.own};
  const auto sorted = [](std::vector<std::size_t> list) {
    std::sort(list.begin(), list.end());
    return list;
  };
  const std::vector<std::size_t> own = sorted(certain.own);
  // Combinations of `wanted` out of `open`, by the mask of those taken.
  std::vector<char> taken(open.size());
  if (wanted > open.size()) return found;
  std::fill_n(taken.begin(), wanted, 1);
  do {
    std::vector<std::size_t> one = held;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (taken[i]) one.push_back(open[i]);
    if (sorted(one) == own) continue;
    if (found.size() == most) return {};
    found.push_back(std::move(one));
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return found;
}

// The form's own angles as it has returned them. What it routes by may have one rounding less, and be on either side of
// the last wrap, which moves an angle by the rounding of a turn.
template <DType judged>
std::vector<Companion<judged>> returned_angles(const double* theta, std::size_t P) {
  std::vector<Companion<judged>> phases;
  for (std::size_t p = 0; p < P; ++p) {
    Companion<judged> angle(theta[p]);
    angle.e = gamma<judged>(2) * 2 * std::numbers::pi;
    phases.push_back(angle);
  }
  return phases;
}

template <DType judged>
Route<judged> routed(std::vector<Companion<judged>> phases, const std::vector<double>& mu, double steepness,
                     std::size_t top_k) {
  using R = Companion<judged>;
  std::vector<R> angles(mu.begin(), mu.end());
  const std::vector<R> l = moe_gate::exponents(moe_gate::mean_angle(phases), angles, moe_gate::rounded_constant<R>(steepness));
  Route<judged> route;
  route.phases = std::move(phases);
  route.exponentials = moe_gate::exponentials(l);
  const R sum = moe_gate::sum_of(route.exponentials);
  route.taken = branch(sum, moe_gate::cut_exponent);
  route.gates = moe_gate::gates(route.exponentials, sum, route.taken);
  const moe_gate::Selections certain = moe_gate::selections(l, top_k, route.taken);
  route.selections = all_selections(certain, most_selections);
  route.lost = route.selections.empty() || route.taken == Branch::either;
  if (route.selections.empty()) route.selections = {certain.own};
  return route;
}

// The circular mean of a sequence's angles, and its derivatives: all that the route has of them is this one number.
template <DType judged>
struct MeanAngle {
  Companion<judged> value;
  Row<Companion<judged>> slopes;  // by angle
};

template <DType judged>
MeanAngle<judged> mean_angle_of(const std::vector<Companion<judged>>& angles) {
  using R = Companion<judged>;
  using X = Taped<R>;
  Tape<R> tape;
  X::tape = &tape;
  std::vector<X> phases;
  for (const R& angle : angles) phases.push_back(X::leaf(angle));
  const X mean = moe_gate::mean_angle(phases);
  std::vector<R> seeds(tape.size());
  seeds[mean.node] = R(1);
  const std::vector<R> pulled = tape.pull_back(std::move(seeds));
  X::tape = nullptr;
  MeanAngle<judged> result{mean.value, Row<R>(angles.size())};
  for (std::size_t p = 0; p < angles.size(); ++p) result.slopes.set(p, pulled[phases[p].node]);
  return result;
}

// How gates and weights of one selection follow the mean angle.
template <DType judged>
struct RouteSlopes {
  Companion<judged> gates;                 // of sum_e of_gates_e gate_e
  std::vector<Companion<judged>> weights;  // of each weight
};

template <DType judged>
RouteSlopes<judged> route_slopes(const Route<judged>& route, const Companion<judged>& mean,
                                 const std::vector<double>& mu, double steepness,
                                 const std::vector<std::size_t>& chosen,
                                 const std::vector<Companion<judged>>& of_gates) {
  using R = Companion<judged>;
  using X = Taped<R>;
  Tape<R> tape;
  X::tape = &tape;
  const X theta = X::leaf(mean);
  std::vector<X> angles;
  for (const double angle : mu) angles.push_back(X(R(angle)));
  const std::vector<X> g =
      moe_gate::exponentials(moe_gate::exponents(theta, angles, X(moe_gate::rounded_constant<R>(steepness))));
  const std::vector<X> gates = moe_gate::gates(g, moe_gate::sum_of(g), route.taken),
                       weights = moe_gate::weights(g, chosen, route.taken);
  const auto slope = [&](const std::vector<X>& of, const std::vector<R>& cotangents) {
    std::vector<R> seeds(tape.size());
    for (std::size_t i = 0; i < of.size(); ++i)
      if (of[i].node != Tape<R>::constant) seeds[of[i].node] = seeds[of[i].node] + cotangents[i];
    return tape.pull_back(std::move(seeds))[theta.node];
  };
  RouteSlopes<judged> result{slope(gates, of_gates), {}};
  for (const X& weight : weights) result.weights.push_back(slope({weight}, {R(1)}));
  X::tape = nullptr;
  return result;
}

}  // namespace fractus::oracle::block_core
