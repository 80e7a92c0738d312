#include "tests/oracle/cross_entropy_float50.h"

#include <fmt/format.h>

#include "oracle/exact.h"

namespace fractus::oracle::cross_entropy {
namespace {

Dense<Float50> matrix_of(const Array& array) {
  Dense<Float50> result(static_cast<std::size_t>(array.shape[0]), static_cast<std::size_t>(array.shape[1]));
  for (std::size_t r = 0; r < result.rows(); ++r)
    for (std::size_t c = 0; c < result.columns(); ++c)
      result.set(r, c, Float50(array.values[r * result.columns() + c]));
  return result;
}

struct Call {
  Dense<Float50> h, W;
  std::vector<std::size_t> targets;
  std::optional<Float50> g;
};

Call call_of(const Question& question) {
  Call call{matrix_of(*question.inputs[0]), matrix_of(*question.inputs[1]), {}, std::nullopt};
  for (double t : question.inputs[2]->values) call.targets.push_back(static_cast<std::size_t>(t));
  if (question.cotangent) call.g = Float50(question.cotangent->values[0]);
  return call;
}

auto evaluated(const Call& call) { return evaluate<Float50>(call.h, call.W, call.targets, call.g, {}, 1); }

void measure(const ExpectedTensor& tensor, double radius_per_tolerance, const Dense<Float50>& truth,
             Distance& distance) {
  for (std::size_t i = 0; i < tensor.value.size(); ++i) {
    if (!std::isfinite(tensor.tolerance[i])) continue;
    Float50 off = Float50(tensor.value[i]) - truth.get(i / truth.columns(), i % truth.columns());
    if (!tensor.remainder.empty()) off += Float50(tensor.remainder[i]);
    const double error = static_cast<double>(abs(off)), radius = tensor.tolerance[i] * radius_per_tolerance;
    if (error == 0) continue;
    distance.over_radius = std::max(distance.over_radius, error / radius);
    if (error > radius && distance.where.empty())
      distance.where =
          fmt::format("{}[{}] is {}, off by {}, radius {}", tensor.name, i, tensor.value[i], error, radius);
  }
}

}  // namespace

Distance distance_to_truth(const Question& question, const Expected& expected) {
  const auto truth = evaluated(call_of(question));
  Distance distance;
  Dense<Float50> loss(1, 1);
  loss.set(0, 0, truth.loss);
  measure(expected.outputs[0], expected.radius_per_tolerance, loss, distance);
  if (!truth.dh) return distance;
  measure(*expected.gradients[0], expected.radius_per_tolerance, *truth.dh, distance);
  measure(*expected.gradients[1], expected.radius_per_tolerance, *truth.dW, distance);
  return distance;
}

double adjoint_against_differences(const Question& question) {
  Call call = call_of(question);
  const auto gradients = evaluated(call);
  const Float50 step("1e-17");  // truncation h^2 and cancellation 1e-50/h meet near it
  double worst = 0;
  const auto compare = [&](Dense<Float50>& x, const Dense<Float50>& gradient) {
    for (std::size_t r = 0; r < x.rows(); ++r)
      for (std::size_t c = 0; c < x.columns(); ++c) {
        const Float50 at = x.get(r, c);
        x.set(r, c, at + step);
        const Float50 above = evaluated(call).loss;
        x.set(r, c, at - step);
        const Float50 difference = *call.g * (above - evaluated(call).loss) / (2 * step);
        x.set(r, c, at);
        worst =
            std::max(worst, static_cast<double>(abs(Float50(difference - gradient.get(r, c))) / (1 + abs(difference))));
      }
  };
  compare(call.h, *gradients.dh);
  compare(call.W, *gradients.dW);
  return worst;
}

std::vector<double> true_law(const Array& h, const Array& W, double temperature) {
  const Dense<Float50> x = times_transposed(matrix_of(h), matrix_of(W), 1);
  std::vector<double> law;
  for (std::size_t n = 0; n < x.rows(); ++n) {
    Row<Float50> y = x.row(n);
    scale(y, Float50(1 / Float50(temperature)));
    shift(y, largest(y));
    const Row<Float50> p = probabilities(y, log_of(total(exponentials(y), {})), {});
    for (std::size_t i = 0; i < p.size(); ++i) law.push_back(static_cast<double>(p.get(i)));
  }
  return law;
}

}  // namespace fractus::oracle::cross_entropy
