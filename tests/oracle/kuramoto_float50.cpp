#include "tests/oracle/kuramoto_float50.h"

#include <fmt/format.h>

#include <boost/math/constants/constants.hpp>

#include "oracle/exact.h"
#include "oracle/kuramoto.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle::kuramoto {
namespace {

using Numbers = std::vector<Float50>;

const Float50& turn() {
  static const Float50 two_pi = boost::math::constants::two_pi<Float50>();
  return two_pi;
}

// hidden, omega, U, lambda as one list each.
struct Call {
  std::vector<Numbers> inputs;
  std::size_t tokens, d, P, r;
};

Call call_of(const Question& question) {
  Call call{{},
            0,
            static_cast<std::size_t>(question.inputs[0]->shape[2]),
            question.inputs[1]->values.size(),
            question.inputs[3]->values.size()};
  for (const auto& input : question.inputs) call.inputs.emplace_back(input->values.begin(), input->values.end());
  call.tokens = call.inputs[0].size() / call.d;
  return call;
}

// theta, and the gradients, of the whole call.
std::vector<Numbers> evaluated(const Question& question, const Call& call) {
  using X = Taped<Float50>;
  std::vector<Numbers> result{Numbers(call.tokens * call.P), Numbers(call.inputs[0].size()), Numbers(call.P),
                              Numbers(call.P * call.r), Numbers(call.r)};
  for (std::size_t t = 0; t < call.tokens; ++t) {
    Tape<Float50> tape;
    X::tape = &tape;
    Float50 mean = 0;
    for (std::size_t i = 0; i < call.d; ++i) mean += call.inputs[0][t * call.d + i];
    const X angle = X::leaf(turn() * mean / static_cast<int>(call.d));
    const Float50 dt = question.dt;
    Network<X> network{Row<X>(call.P),
                       zero_matrix<X>(call.P, call.r),
                       zero_matrix<X>(call.r, call.P),
                       Row<X>(call.r),
                       Row<X>(call.P),
                       X(dt),
                       X(Float50(dt / 2)),
                       X(Float50(dt / 6)),
                       X(Float50(question.damping))};
    for (std::size_t p = 0; p < call.P; ++p) {
      network.omega.set(p, X::leaf(call.inputs[1][p]));
      network.offsets.set(p, X(Float50(turn() * static_cast<int>(p) / static_cast<int>(call.P))));
      for (std::size_t k = 0; k < call.r; ++k) {
        network.U[p].set(k, X::leaf(call.inputs[2][p * call.r + k]));
        network.U_transposed[k].set(p, network.U[p].get(k));
      }
    }
    for (std::size_t k = 0; k < call.r; ++k) network.lambda.set(k, X::leaf(call.inputs[3][k]));
    const auto floor_modulus = [](const Float50& x) { return Float50(x - turn() * floor(x / turn())); };
    const Row<X> theta = run(network, started(network, angle), static_cast<std::size_t>(question.n_steps),
                             [&](const X& x, double) { return X(floor_modulus(x.value), x.node); });
    Numbers seeds(tape.size());
    for (std::size_t p = 0; p < call.P; ++p) {
      result[0][t * call.P + p] = floor_modulus(theta.get(p).value);
      seeds[theta.get(p).node] = Float50(question.cotangent->values[t * call.P + p]);
    }
    const Numbers pulled = tape.pull_back(std::move(seeds));
    X::tape = nullptr;
    for (std::size_t i = 0; i < call.d; ++i)
      result[1][t * call.d + i] = turn() * pulled[angle.node] / static_cast<int>(call.d);
    for (std::size_t p = 0; p < call.P; ++p) {
      result[2][p] += pulled[network.omega.get(p).node];
      for (std::size_t k = 0; k < call.r; ++k) result[3][p * call.r + k] += pulled[network.U[p].get(k).node];
    }
    for (std::size_t k = 0; k < call.r; ++k) result[4][k] += pulled[network.lambda.get(k).node];
  }
  return result;
}

void measure(const ExpectedTensor& tensor, double radius_per_tolerance, const Numbers& truth, bool on_circle,
             Distance& distance) {
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (!std::isfinite(tensor.tolerance[i])) continue;
    ++distance.bounded;
    Float50 off = Float50(tensor.value[i]) - truth[i];
    if (!tensor.remainder.empty()) off += Float50(tensor.remainder[i]);
    if (on_circle) off -= turn() * round(off / turn());
    const double error = static_cast<double>(abs(off)), radius = tensor.tolerance[i] * radius_per_tolerance;
    if (error == 0) continue;
    distance.over_radius = std::max(distance.over_radius, error / radius);
    if (error > radius && distance.where.empty())
      distance.where =
          fmt::format("{}[{}] is {}, off by {}, radius {}", tensor.name, i, tensor.value[i], error, radius);
  }
}

}  // namespace

Array true_theta(const Question& question) {
  Array theta = *question.cotangent;
  const Numbers truth = evaluated(question, call_of(question))[0];
  for (std::size_t i = 0; i < truth.size(); ++i) theta.values[i] = static_cast<double>(truth[i]);
  return theta;
}

Distance distance_to_truth(const Question& question, const Expected& expected) {
  const std::vector<Numbers> truth = evaluated(question, call_of(question));
  Distance distance;
  measure(expected.outputs[0], expected.radius_per_tolerance, truth[0], true, distance);
  for (std::size_t i = 0; i < 4; ++i)
    measure(*expected.gradients[i], expected.radius_per_tolerance, truth[i + 1], false, distance);
  return distance;
}

double gradients_against_differences(const Question& question) {
  const Call call = call_of(question);
  const std::vector<Numbers> gradients = evaluated(question, call);
  const Float50 step("1e-17");  // truncation h^2 and cancellation 1e-50/h meet near it
  double worst = 0;
  for (std::size_t input = 0; input < 4; ++input)
    for (std::size_t i = 0; i < call.inputs[input].size(); ++i) {
      Call above = call, below = call;
      above.inputs[input][i] += step, below.inputs[input][i] -= step;
      const Numbers high = evaluated(question, above)[0], low = evaluated(question, below)[0];
      Float50 difference = 0;
      for (std::size_t k = 0; k < high.size(); ++k)
        difference += Float50(question.cotangent->values[k]) * (high[k] - low[k]) / (2 * step);
      const Float50 off = difference - gradients[input + 1][i];
      worst = std::max(worst, static_cast<double>(Float50(abs(off) / (1 + abs(difference)))));
    }
  return worst;
}

}  // namespace fractus::oracle::kuramoto
