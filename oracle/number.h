// What a definition asks of a number system beyond + - * /.
//
// A definition is written once, over a number type R. These overloads are its only questions to the number system:
// where a constant comes from, and on which side of a cut a denominator lies.
#pragma once

#include <cmath>
#include <cstddef>

namespace fractus::oracle {

// A cut sends a row to `divide` or to `cut`. `either`: the certified interval straddles the threshold, so both are
// right.
enum class Branch { divide, cut, either };

// 10^exponent in the number system. Specialised where the nearest double is not what the contract means (exact types).
template <class R>
struct PowerOfTen {
  static R of(int exponent) { return R(std::pow(10.0, exponent)); }
};
template <class R>
R power_of_ten(int exponent) {
  return PowerOfTen<R>::of(exponent);
}

// |den| > 10^exponent decides. Right for every type that is ordered and carries no interval.
template <class R>
Branch branch(const R& den, int exponent) {
  using std::abs;
  return abs(den) > power_of_ten<R>(exponent) ? Branch::divide : Branch::cut;
}

// A kernel may add `terms` more terms into the accumulator of x than the definition's own order does: only a type that
// counts roundings cares.
template <class X>
void may_add(X&, std::size_t) {}

}  // namespace fractus::oracle
