// How a block routes a chunk: one choice of experts for each sequence, by the angles of its last token.
#pragma once

#include <numbers>
#include <vector>

#include "oracle/companion_row.h"
#include "oracle/moe_routing.h"

namespace fractus::oracle::block_core {

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
RouteSlopes<judged> route_slopes(const moe::Route<judged>& route, const Companion<judged>& mean,
                                 const std::vector<double>& mu, const Companion<judged>& steepness,
                                 const std::vector<std::size_t>& chosen,
                                 const std::vector<Companion<judged>>& of_gates) {
  using R = Companion<judged>;
  using X = Taped<R>;
  Tape<R> tape;
  X::tape = &tape;
  const X theta = X::leaf(mean);
  std::vector<X> angles;
  for (const double angle : mu) angles.push_back(X(R(angle)));
  const std::vector<X> g = moe_gate::exponentials(moe_gate::exponents(theta, angles, X(steepness, Tape<R>::constant)));
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
