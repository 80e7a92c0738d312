// A block's experts as the contract's tensors have them, and their gradients as expected tensors.
#pragma once

#include <string>

#include "contracts/array.h"
#include "oracle/companion_dense.h"
#include "oracle/companion_expected.h"
#include "oracle/moe.h"

namespace fractus::oracle::block_core {

// Either dense or of low rank, then with w1 and w2, or all of U1 to scale2, absent.
struct ExpertTensors {
  const Array *w1, *w2, *U1, *V1, *U2, *V2, *scale1, *scale2, *b1, *b2;

  bool low_rank() const { return U1 != nullptr; }
};

// Matrix e of a tensor (E, rows, columns).
template <DType judged>
Leaves<judged> matrix_of(const Array& tensor, std::size_t e) {
  const auto rows = static_cast<std::size_t>(tensor.shape[1]), columns = static_cast<std::size_t>(tensor.shape[2]);
  return {tensor.values.data() + e * rows * columns, rows, columns};
}

template <DType judged>
Row<Companion<judged>> leaves_of(const double* values, std::size_t count) {
  Row<Companion<judged>> row(count);
  for (std::size_t i = 0; i < count; ++i) row.set(i, Companion<judged>(values[i]));
  return row;
}

template <DType judged>
moe::Expert<Companion<judged>> expert_of(const ExpertTensors& tensors, std::size_t e) {
  using R = Companion<judged>;
  const auto map = [&](const Array* W, const Array* V, const Array* U, const Array* scale, const Array& bias) {
    moe::Map<R> result;
    if (tensors.low_rank()) {
      result.V = matrix_of<judged>(*V, e);
      result.U = matrix_of<judged>(*U, e);
      result.scale = R(scale->values[e]);
    } else {
      result.W = matrix_of<judged>(*W, e);
    }
    const auto columns = static_cast<std::size_t>(bias.shape[1]);
    result.bias = leaves_of<judged>(bias.values.data() + e * columns, columns);
    return result;
  };
  return {map(tensors.w1, tensors.V1, tensors.U1, tensors.scale1, *tensors.b1),
          map(tensors.w2, tensors.V2, tensors.U2, tensors.scale2, *tensors.b2)};
}

// Where the gradients go; absent tensors as above.
struct ExpertGradientTensors {
  ExpectedTensor *w1, *w2, *U1, *V1, *U2, *V2, *scale1, *scale2, *b1, *b2;
};

// Expert e's part; may be called for several experts at once.
template <DType judged>
void put_expert(const moe::ExpertGradients<Companion<judged>>& gradients, const ExpertGradientTensors& to,
                std::size_t e) {
  using R = Companion<judged>;
  const auto put_row = [](const Row<R>& row, ExpectedTensor& tensor, std::size_t first) {
    for (std::size_t i = 0; i < row.size(); ++i) put(row.get(i), tensor, first + i);
  };
  const auto matrix = [&](const auto& product, ExpectedTensor* tensor) {
    if (!product) return;
    const std::size_t size = product->rows() * product->columns();
    for (std::size_t r = 0; r < product->rows(); ++r)
      put_row(product->row(r), *tensor, e * size + r * product->columns());
  };
  const auto map = [&](const moe::MapGradients<R>& of, ExpectedTensor* W, ExpectedTensor* V, ExpectedTensor* U,
                       ExpectedTensor* scale, ExpectedTensor& bias) {
    matrix(of.W, W);
    matrix(of.V, V);
    matrix(of.U, U);
    if (scale != nullptr) put(of.scale, *scale, e);
    put_row(of.bias, bias, e * of.bias.size());
  };
  map(gradients.first, to.w1, to.V1, to.U1, to.scale1, *to.b1);
  map(gradients.second, to.w2, to.V2, to.U2, to.scale2, *to.b2);
}

}  // namespace fractus::oracle::block_core
