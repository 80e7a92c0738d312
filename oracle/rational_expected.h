// A rational definition over floats, with certified bounds: values of Companions, gradients by the tape. It is asked
// for only where the algebra of a form differs already (properties/identity.cpp), to show the difference in floats.
#pragma once

#include <vector>

#include "oracle/companion.h"
#include "oracle/companion_expected.h"
#include "oracle/rational.h"

namespace fractus::oracle {

struct FloatCall {
  const Contract* contract = nullptr;
  DType dtype = DType::float32;
  std::vector<std::optional<Array>> inputs, cotangents;  // in the contract's order
};

namespace rational {

template <DType judged, class Outputs>
Expected expected_in(const Outputs& outputs_of, const FloatCall& call) {
  using R = Companion<judged>;
  Point<R> point;
  point.whole.resize(call.inputs.size());
  const auto taken = [](const std::optional<Array>& array) -> std::optional<Tensor<R>> {
    if (!array) return std::nullopt;
    Tensor<R> tensor{array->shape, {}};
    for (const double x : array->values) tensor.values.push_back(R(x));
    return tensor;
  };
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const bool whole = call.contract->inputs[i].dtype.has_value();
    point.inputs.push_back(whole ? std::nullopt : taken(call.inputs[i]));
    if (whole && call.inputs[i]) {
      point.whole[i] = Tensor<std::int64_t>{call.inputs[i]->shape, {}};
      for (const double x : call.inputs[i]->values) point.whole[i]->values.push_back(static_cast<std::int64_t>(x));
    }
  }
  for (const auto& cotangent : call.cotangents) point.cotangents.push_back(taken(cotangent));

  const Values<R> values = by_tape(outputs_of, point);
  Expected expected;
  expected.dtype = judged;
  expected.radius_per_tolerance = base_radius<judged>;
  const auto told = [](const std::string& name, const Tensor<R>& tensor) {
    ExpectedTensor result = blank<judged>(name, tensor.shape);
    for (std::size_t e = 0; e < tensor.values.size(); ++e) put(tensor.values[e], result, e);
    return result;
  };
  for (std::size_t j = 0; j < values.outputs.size(); ++j)
    expected.outputs.push_back(told(call.contract->outputs[j].name, values.outputs[j]));
  for (std::size_t i = 0; i < values.gradients.size(); ++i) {
    expected.gradients.emplace_back();
    if (values.gradients[i])
      expected.gradients.back() = told("d" + call.contract->inputs[i].name, *values.gradients[i]);
  }
  return expected;
}

}  // namespace rational

template <class Outputs>
Expected expected_by_tape(const Outputs& outputs_of, const FloatCall& call) {
  return call.dtype == DType::float32 ? rational::expected_in<DType::float32>(outputs_of, call)
                                      : rational::expected_in<DType::float64>(outputs_of, call);
}

}  // namespace fractus::oracle
