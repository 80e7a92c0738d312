// Rows of activations through a matrix of weights, and the adjoint, over any number type:
//
//   y = x W + b      dx = dy W^T      dW = x^T dy      db = sum over rows of dy
#pragma once

#include <algorithm>

#include "oracle/companion_dense.h"

namespace fractus::oracle {

// A matrix of weights both ways round: large products take their right side as it lies in memory.
template <class R>
class Weights {
 public:
  Weights(const double* values, std::size_t rows, std::size_t columns) : matrix_(rows, columns) {
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c) matrix_.set(r, c, R(values[r * columns + c]));
  }
  std::size_t rows() const { return matrix_.rows(); }
  std::size_t columns() const { return matrix_.columns(); }
  // The longest chain of additions in a sum over x W, or x W^T.
  std::size_t additions(bool transposed) const { return transposed ? columns() : rows(); }

  // x W, or x W^T
  Matrix<R> after(const Matrix<R>& x, bool transposed, std::size_t /*further_additions*/, int threads) const {
    Matrix<R> result(x.size());
    for_each(x.size(), threads, [&](std::size_t n) {
      Row<R> y(transposed ? rows() : columns());
      for (std::size_t o = 0; o < y.size(); ++o) {
        R sum(0);
        for (std::size_t k = 0; k < x[n].size(); ++k)
          sum = sum + x[n].get(k) * (transposed ? matrix_.get(o, k) : matrix_.get(k, o));
        y.set(o, sum);
      }
      result[n] = std::move(y);
    });
    return result;
  }

 private:
  Dense<R> matrix_;
};

template <DType judged>
class Weights<Companion<judged>> {
 public:
  Weights(const double* values, std::size_t rows, std::size_t columns)
      : values_(values), rows_(rows), columns_(columns), transposed_(rows * columns) {
    std::vector<std::size_t> of_column(columns);
    for (std::size_t r = 0; r < rows; ++r) {
      std::size_t of_row = 0;
      for (std::size_t c = 0; c < columns; ++c) {
        const double x = values[r * columns + c];
        transposed_[c * rows + r] = x;
        of_row += x != 0;
        of_column[c] += x != 0;
      }
      most_in_row_ = std::max(most_in_row_, of_row);
    }
    if (columns > 0) most_in_column_ = *std::max_element(of_column.begin(), of_column.end());
  }

  Matrix<Companion<judged>> after(const Matrix<Companion<judged>>& x, bool transposed, std::size_t further_additions,
                                  int threads) const {
    Dense<Companion<judged>> a(x.size(), transposed ? columns_ : rows_);
    for (std::size_t n = 0; n < x.size(); ++n) a.set_row(n, x[n]);
    const Leaves<judged> b =
        transposed ? Leaves<judged>{transposed_.data(), columns_, rows_} : Leaves<judged>{values_, rows_, columns_};
    const Stored<judged> product = times(a, b, additions(transposed) + further_additions, threads);
    Matrix<Companion<judged>> result;
    result.reserve(x.size());
    for (std::size_t n = 0; n < x.size(); ++n) result.push_back(product.row(n));
    return result;
  }
  // To add a product with 0 rounds nothing, so the chain is as long as the fullest column or row.
  std::size_t additions(bool transposed) const { return transposed ? most_in_row_ : most_in_column_; }

 private:
  const double* values_;
  std::size_t rows_, columns_, most_in_row_ = 0, most_in_column_ = 0;
  std::vector<double> transposed_;
};

// x W + b
template <class R>
Matrix<R> project(const Matrix<R>& x, const Weights<R>& W, const Row<R>& bias, int threads) {
  Matrix<R> y = W.after(x, false, 1, threads);
  for (Row<R>& row : y) add(row, bias);
  return y;
}
// The bias may come first or last: it takes as many additions as any product.
template <DType judged>
Matrix<Companion<judged>> project(const Matrix<Companion<judged>>& x, const Weights<Companion<judged>>& W,
                                  const Row<Companion<judged>>& bias, int threads) {
  Matrix<Companion<judged>> y = W.after(x, false, 1, threads);
  const double rounding = gamma<judged>(static_cast<double>(W.additions(false)) + 2);
  for (Row<Companion<judged>>& row : y) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      row.v[i] += bias.v[i];
      row.m[i] = magnitude(row.v[i]);
      row.e[i] += rounding * magnitude(bias.v[i]) + bias.e[i];
    }
    row.w = std::max(row.w, bias.w);
  }
  return y;
}

// dy W^T
template <class R>
Matrix<R> project_back(const Matrix<R>& dy, const Weights<R>& W, int threads) {
  return W.after(dy, true, 0, threads);
}

// x^T dy, and the sum of dy's rows
template <class R>
Matrix<R> weight_gradient(const Matrix<R>& x, const Matrix<R>& dy, int threads) {
  Matrix<R> result(x.front().size());
  for_each(result.size(), threads, [&](std::size_t k) {
    Row<R> row(dy.front().size());
    for (std::size_t n = 0; n < x.size(); ++n) add_product(row, x[n].get(k), dy[n]);
    result[k] = std::move(row);
  });
  return result;
}
template <DType judged>
Matrix<Companion<judged>> weight_gradient(const Matrix<Companion<judged>>& x, const Matrix<Companion<judged>>& dy,
                                          int threads) {
  const auto dense = [](const Matrix<Companion<judged>>& rows) {
    Dense<Companion<judged>> matrix(rows.size(), rows.front().size());
    for (std::size_t n = 0; n < rows.size(); ++n) matrix.set_row(n, rows[n]);
    return matrix;
  };
  const Stored<judged> product = transposed_times(dense(x), dense(dy), threads);
  Matrix<Companion<judged>> result;
  for (std::size_t k = 0; k < product.rows(); ++k) result.push_back(product.row(k));
  return result;
}

template <class R>
Row<R> sum_of_rows(const Matrix<R>& x) {
  Row<R> sum(x.front().size());
  for (const Row<R>& row : x) add(sum, row);
  return sum;
}

}  // namespace fractus::oracle
