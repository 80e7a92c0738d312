// Matrices in one piece, and the three products of them that large contractions are made of.
//
// Dense<R> is general; a number type may specialise it and overload the products (Companion does, with one library
// product for the values and one for their bounds). Large matrices of leaves are InputOf<R>, which may be borrowed.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/number.h"
#include "oracle/parallel.h"
#include "oracle/row.h"

namespace fractus::oracle {

template <class R>
class Dense {
 public:
  Dense(std::size_t rows, std::size_t columns) : rows_(rows), columns_(columns), numbers_(rows * columns) {}

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  const R& get(std::size_t r, std::size_t c) const { return numbers_[r * columns_ + c]; }
  void set(std::size_t r, std::size_t c, const R& x) { numbers_[r * columns_ + c] = x; }

  Row<R> row(std::size_t r) const {
    Row<R> result(columns_);
    for (std::size_t c = 0; c < columns_; ++c) result.set(c, get(r, c));
    return result;
  }
  // Rows may be set by several threads at once.
  void set_row(std::size_t r, const Row<R>& x) {
    for (std::size_t c = 0; c < columns_; ++c) set(r, c, x.get(c));
  }

 private:
  std::size_t rows_, columns_;
  std::vector<R> numbers_;
};

template <class R>
struct InputOf {
  using type = Dense<R>;
};
template <class R>
using Input = typename InputOf<R>::type;

// a b^T, for a (N,K) and b (M,K).
template <class R>
Dense<R> times_transposed(const Dense<R>& a, const Dense<R>& b, int threads) {
  Dense<R> result(a.rows(), b.rows());
  for_each(b.rows(), threads, [&](std::size_t c) {
    for (std::size_t r = 0; r < a.rows(); ++r) {
      R sum(0);
      for (std::size_t k = 0; k < a.columns(); ++k) sum = sum + a.get(r, k) * b.get(c, k);
      result.set(r, c, sum);
    }
  });
  return result;
}

// a b, for a (N,K) and b (K,M). `additions`: the longest chain of additions that a kernel may take over the K terms.
template <class R>
Dense<R> times(const Dense<R>& a, const Dense<R>& b, std::size_t /*additions*/, int threads) {
  Dense<R> result(a.rows(), b.columns());
  for_each(a.rows(), threads, [&](std::size_t r) {
    for (std::size_t k = 0; k < a.columns(); ++k) {
      if (vanishes(a.get(r, k))) continue;
      for (std::size_t c = 0; c < b.columns(); ++c) result.set(r, c, result.get(r, c) + a.get(r, k) * b.get(k, c));
    }
  });
  return result;
}

// a^T b, for a (K,N) and b (K,M), the sums in any order.
template <class R>
Dense<R> transposed_times(const Dense<R>& a, const Dense<R>& b, int threads) {
  Dense<R> result(a.columns(), b.columns());
  for_each(a.columns(), threads, [&](std::size_t r) {
    for (std::size_t k = 0; k < a.rows(); ++k) {
      if (vanishes(a.get(k, r))) continue;
      for (std::size_t c = 0; c < b.columns(); ++c) result.set(r, c, result.get(r, c) + a.get(k, r) * b.get(k, c));
    }
  });
  return result;
}

// a b and a b^T that go on into further products: only a type that counts roundings cares for the difference.
template <class R>
Dense<R> open_times(const Dense<R>& a, const Dense<R>& b) {
  return times(a, b, 0, 1);
}
template <class R>
Dense<R> open_times_transposed(const Dense<R>& a, const Dense<R>& b) {
  return times_transposed(a, b, 1);
}

}  // namespace fractus::oracle
