// One group of a call as numbers of any type, for the definition itself rather than for `expected`.
#pragma once

#include "oracle/linear_attention.h"
#include "oracle/linear_attention_expected.h"

namespace fractus::oracle::linear_attention {

template <class R, class Leaf>
Matrix<R> matrix_of(const std::optional<Array>* array, std::size_t rows, std::size_t columns, Leaf leaf) {
  Matrix<R> matrix = zero_matrix<R>(rows, columns);
  if (array == nullptr || !*array) return matrix;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) matrix[r].set(c, leaf((*array)->values[r * columns + c]));
  return matrix;
}

template <class R, class Leaf>
Inputs<R> inputs_of(const Question& question, Leaf leaf) {
  const auto T = static_cast<std::size_t>(question.inputs[0]->shape[1]),
             D = static_cast<std::size_t>(question.inputs[0]->shape[2]);
  const auto matrix = [&](std::size_t i, std::size_t rows) { return matrix_of<R>(&question.inputs[i], rows, D, leaf); };
  return {matrix(0, T), matrix(1, T), matrix(2, T), matrix(3, D), matrix(4, 1)[0]};
}

// Absent where the call asks for no gradients.
template <class R, class Leaf>
std::optional<Cotangents<R>> cotangents_of(const Question& question, Leaf leaf) {
  const auto T = static_cast<std::size_t>(question.inputs[0]->shape[1]),
             D = static_cast<std::size_t>(question.inputs[0]->shape[2]);
  if (question.cotangents.empty()) return std::nullopt;
  const auto matrix = [&](std::size_t j, std::size_t rows) {
    return matrix_of<R>(&question.cotangents[j], rows, D, leaf);
  };
  Cotangents<R> cotangents{std::nullopt, matrix(1, D), matrix(2, 1)[0]};
  if (question.cotangents[0]) cotangents.y = matrix(0, T);
  return cotangents;
}

// Outputs y, S, z, then the gradients of q, k, v, S0, z0 where there are any.
template <class R>
std::vector<Matrix<R>> tensors_of(const Result<R>& result) {
  std::vector<Matrix<R>> list{result.outputs.y, result.outputs.S, {result.outputs.z}};
  if (result.gradients) {
    const Gradients<R>& g = *result.gradients;
    list.insert(list.end(), {g.q, g.k, g.v, g.S0, {g.z0}});
  }
  return list;
}

}  // namespace fractus::oracle::linear_attention
