#include "tests/oracle/float50.h"

#include <fmt/format.h>

#include <functional>

#include "oracle/exact.h"
#include "tests/oracle/group.h"

namespace fractus::oracle::linear_attention {
namespace {

using Matrices = std::vector<Matrix<Float50>>;

const auto leaf = [](double x) { return Float50(x); };

Result<Float50> result_of(const Inputs<Float50>& inputs, const std::optional<Cotangents<Float50>>& cotangents) {
  return evaluate<Float50>(inputs, cotangents ? &*cotangents : nullptr, {});
}

void measure(const ExpectedTensor& tensor, double radius_per_tolerance, const Matrix<Float50>& truth,
             Distance& distance) {
  std::size_t i = 0;
  for (const Row<Float50>& row : truth)
    for (std::size_t c = 0; c < row.size(); ++c, ++i) {
      if (!std::isfinite(tensor.tolerance[i])) continue;
      Float50 value(tensor.value[i]);
      if (!tensor.remainder.empty()) value += Float50(tensor.remainder[i]);
      const auto missed = static_cast<double>(abs(Float50(value - row.get(c))));
      const double radius = tensor.tolerance[i] * radius_per_tolerance;
      if (missed > 0) distance.over_radius = std::max(distance.over_radius, missed / radius);
      if (missed > radius)
        distance.where =
            fmt::format("{}[{}]: value {}, missed by {}, radius {}", tensor.name, i, tensor.value[i], missed, radius);
    }
}

// sum over all outputs of cotangent * output
Float50 functional(const Inputs<Float50>& inputs, const Cotangents<Float50>& cotangents) {
  const Outputs<Float50> out = result_of(inputs, std::nullopt).outputs;
  Float50 sum = dot(out.z, cotangents.z);
  for (std::size_t p = 0; p < out.S.size(); ++p) sum += dot(out.S[p], cotangents.S[p]);
  if (cotangents.y)
    for (std::size_t t = 0; t < out.y.size(); ++t) sum += dot(out.y[t], (*cotangents.y)[t]);
  return sum;
}

}  // namespace

Distance distance_to_truth(const Question& question, const Expected& expected) {
  const Matrices truth =
      tensors_of(result_of(inputs_of<Float50>(question, leaf), cotangents_of<Float50>(question, leaf)));
  Distance distance;
  for (std::size_t i = 0; i < truth.size(); ++i)
    measure(i < 3 ? expected.outputs[i] : *expected.gradients[i - 3], expected.radius_per_tolerance, truth[i],
            distance);
  return distance;
}

double adjoint_against_differences(const Question& question) {
  Inputs<Float50> inputs = inputs_of<Float50>(question, leaf);
  const Cotangents<Float50> cotangents = *cotangents_of<Float50>(question, leaf);
  const Gradients<Float50> gradients = *result_of(inputs, cotangents).gradients;
  // Truncation h^2 and cancellation 1e-50/h meet near 1e-17.
  const Float50 h("1e-17");
  double worst = 0;
  const auto compare = [&](Row<Float50>& row, const Row<Float50>& gradient) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const Float50 at = row.get(c);
      row.set(c, at + h);
      const Float50 above = functional(inputs, cotangents);
      row.set(c, at - h);
      const Float50 difference = (above - functional(inputs, cotangents)) / (2 * h);
      row.set(c, at);
      worst = std::max(worst, static_cast<double>(abs(Float50(difference - gradient.get(c))) / (1 + abs(difference))));
    }
  };
  const auto compare_all = [&](Matrix<Float50>& matrix, const Matrix<Float50>& gradient) {
    for (std::size_t r = 0; r < matrix.size(); ++r) compare(matrix[r], gradient[r]);
  };
  compare_all(inputs.q, gradients.q);
  compare_all(inputs.k, gradients.k);
  compare_all(inputs.v, gradients.v);
  compare_all(inputs.S0, gradients.S0);
  compare(inputs.z0, gradients.z0);
  return worst;
}

}  // namespace fractus::oracle::linear_attention
