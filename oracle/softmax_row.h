// The steps of a softmax on one row, over any number type. exp and log may lead from one sort of numbers to another
// (number.h), so a row of exponents is a Row<Exponent<R>>.
#pragma once

#include "oracle/number.h"
#include "oracle/row.h"

namespace fractus::oracle {

// What a kernel may do in a sum over a whole row: only a type that counts roundings cares.
struct Chain {
  std::size_t additions = 0;   // on the longest path through the sum
  std::size_t rescalings = 0;  // times that a running maximum may rise, and the sum so far be multiplied for it
};

template <class X>
X largest(const Row<X>& x) {
  X result = x.get(0);
  for (std::size_t i = 1; i < x.size(); ++i) result = larger(result, x.get(i));
  return result;
}

// x -= a
template <class X>
void shift(Row<X>& x, const X& a) {
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, computed(computed(x.get(i)) - computed(a)));
}

template <class X>
auto exponentials(const Row<X>& y) {
  Row<decltype(exp_of(y.get(0)))> result(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) result.set(i, exp_of(y.get(i)));
  return result;
}

template <class R>
R total(const Row<R>& x, const Chain&) {
  R sum(0);
  for (std::size_t i = 0; i < x.size(); ++i) sum = sum + x.get(i);
  return sum;
}

// exp(y - l), for l the log of the sum over exp(y)
template <class X>
auto probabilities(const Row<X>& y, const X& l, const Chain&) {
  Row<decltype(exp_of(y.get(0)))> result(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) result.set(i, exp_of(y.get(i) - l));
  return result;
}

// A kernel may let the derivative pass through the maximum, which takes minus the sum over dx: 0, but for what its
// terms and the sum round.
template <class R, class X>
void may_return_sum(Row<R>&, const Row<X>&, const Chain&) {}

// x *= a
template <class R>
void scale(Row<R>& x, const R& a) {
  for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x.get(i) * a);
}

}  // namespace fractus::oracle
