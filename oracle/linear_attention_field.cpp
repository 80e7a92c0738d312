#include "oracle/linear_attention_field.h"

#include "oracle/linear_attention.h"

namespace fractus::oracle::linear_attention {
namespace {

template <class R>
Matrix<R> rows_of(const std::optional<Tensor<R>>& tensor, std::size_t first, std::size_t rows, std::size_t columns) {
  Matrix<R> matrix = zero_matrix<R>(rows, columns);
  if (!tensor) return matrix;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) matrix[r].set(c, tensor->values[(first + r) * columns + c]);
  return matrix;
}

template <class R>
void append(const Row<R>& row, Tensor<R>& tensor) {
  for (std::size_t c = 0; c < row.size(); ++c) tensor.values.push_back(row.get(c));
}
template <class R>
void append(const Matrix<R>& matrix, Tensor<R>& tensor) {
  for (const Row<R>& row : matrix) append(row, tensor);
}

struct Definition {
  Epsilon epsilon;

  template <class R>
  Values<R> operator()(const Point<R>& point) const {
    const Shape tokens = point.inputs.at(0)->shape;
    const Shape state{tokens[0], tokens[2], tokens[2]}, norm{tokens[0], tokens[2]};
    const auto G = static_cast<std::size_t>(tokens[0]), T = static_cast<std::size_t>(tokens[1]),
               D = static_cast<std::size_t>(tokens[2]);
    R added = epsilon.dropped ? R(0) : power_of_ten<R>(epsilon.exponent);
    if (epsilon.beside) added = added + power_of_ten<R>(epsilon_exponent);
    const bool backward = point.backward();
    Values<R> values{{{tokens, {}}, {state, {}}, {norm, {}}}, {}};
    if (backward)
      for (const Shape& shape : {tokens, tokens, tokens, state, norm}) values.gradients.push_back(Tensor<R>{shape, {}});
    for (std::size_t g = 0; g < G; ++g) {
      const auto input = [&](std::size_t i, std::size_t rows) { return rows_of(point.inputs[i], g * rows, rows, D); };
      const auto cotangent = [&](std::size_t j, std::size_t rows) {
        return rows_of(point.cotangents[j], g * rows, rows, D);
      };
      const Inputs<R> in{input(0, T), input(1, T), input(2, T), input(3, D), input(4, 1)[0]};
      std::optional<Cotangents<R>> flowing;
      if (backward) {
        flowing = Cotangents<R>{std::nullopt, cotangent(1, D), cotangent(2, 1)[0]};
        if (point.cotangents[0]) flowing->y = cotangent(0, T);
      }
      const Result<R> group = evaluate<R>(in, flowing ? &*flowing : nullptr, {}, added);
      append(group.outputs.y, values.outputs[0]);
      append(group.outputs.S, values.outputs[1]);
      append(group.outputs.z, values.outputs[2]);
      if (!backward) continue;
      append(group.gradients->q, *values.gradients[0]);
      append(group.gradients->k, *values.gradients[1]);
      append(group.gradients->v, *values.gradients[2]);
      append(group.gradients->S0, *values.gradients[3]);
      append(group.gradients->z0, *values.gradients[4]);
    }
    return values;
  }
};

void cut_to_one_group(std::optional<Residues>& tensor) {
  if (!tensor || tensor->shape[0] < 2) return;
  tensor->values.resize(tensor->values.size() / static_cast<std::size_t>(tensor->shape[0]));
  tensor->shape[0] = 1;
}

}  // namespace

FieldExpected over_field(const FieldCall& call, const Epsilon& epsilon) {
  return oracle::over_field(Definition{epsilon}, call);
}

Degrees degrees(FieldCall call) {
  for (auto& input : call.inputs) cut_to_one_group(input);
  for (auto& cotangent : call.cotangents) cut_to_one_group(cotangent);
  return oracle::degrees(Definition{}, call);
}

}  // namespace fractus::oracle::linear_attention
