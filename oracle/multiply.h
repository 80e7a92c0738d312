// One product of plain matrices, by Eigen: what a number type's large contractions are made of. Apart, since Eigen is
// slow to compile: only multiply.cpp sees it.
#pragma once

#include <cstddef>

namespace fractus::oracle {

// rows x columns numbers, row by row, `stride` apart; `transposed` says that the product takes it the other way round.
template <class T>
struct Block {
  const T* data;
  std::size_t rows, columns, stride;
  bool transposed = false;
};

// c += a b; c is row by row, `stride` apart, and overlaps neither. T is float, double or long double. Sums run over a's
// columns in an order of Eigen's own, on the calling thread alone.
template <class T>
void multiply_add(const Block<T>& a, const Block<T>& b, T* c, std::size_t stride);

}  // namespace fractus::oracle
