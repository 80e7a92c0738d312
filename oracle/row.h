// Rows and matrices over a number type, and the few contractions that definitions are made of.
//
// Row<R> is general; a number type may specialise it (Companion does, with one array per component), and the
// primitives below are overloaded with it. Everything a definition sums goes through them.
#pragma once

#include <cstddef>
#include <vector>

namespace fractus::oracle {

template <class R>
class Row {
 public:
  Row() = default;
  explicit Row(std::size_t size) : numbers_(size) {}

  std::size_t size() const { return numbers_.size(); }
  const R& get(std::size_t i) const { return numbers_[i]; }
  void set(std::size_t i, const R& x) { numbers_[i] = x; }

 private:
  std::vector<R> numbers_;
};

template <class R>
using Matrix = std::vector<Row<R>>;

template <class R>
Matrix<R> zero_matrix(std::size_t rows, std::size_t columns) {
  return Matrix<R>(rows, Row<R>(columns));
}

// y += x
template <class R>
void add(Row<R>& y, const Row<R>& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y.set(i, y.get(i) + x.get(i));
}

// y += a x
template <class R>
void add_product(Row<R>& y, const R& a, const Row<R>& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y.set(i, y.get(i) + a * x.get(i));
}

// x . y
template <class R>
R dot(const Row<R>& x, const Row<R>& y) {
  R sum(0);
  for (std::size_t i = 0; i < x.size(); ++i) sum = sum + x.get(i) * y.get(i);
  return sum;
}

// x / den, element by element
template <class R>
Row<R> quotient(const Row<R>& x, const R& den) {
  Row<R> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result.set(i, x.get(i) / den);
  return result;
}

// A row that stands for both x and 0 where a cut could not be decided. Only a type that carries an interval can hold
// both.
template <class R>
Row<R> hull_with_zero(const Row<R>& x) {
  return x;
}

}  // namespace fractus::oracle
