// Exponents of GF(p): x is known by E = exp(x), an element of the multiplicative group. Addition of exponents is
// multiplication there, exp and log only change the sort, and so every identity that holds for exp because
// exp(x + y) = exp(x) exp(y) holds here exactly (METHODS.md, section 1: two-sorted).
#pragma once

#include <utility>

#include "oracle/field.h"

namespace fractus::oracle {

class FieldExponent {
 public:
  FieldExponent() = default;
  // Sums start from 0, and counts of a mean are no exponents: no other integer is used.
  explicit FieldExponent(int zero) : E_(zero == 0 ? Field(1) : throw std::domain_error("exp of an integer in GF(p)")) {}
  // The x with exp(x) = E. Throws std::domain_error for 0, which is no power: the draw has to be drawn again.
  static FieldExponent log(const Field& E) {
    if (E == Field(0)) throw std::domain_error("log of 0 in GF(2^61-1): draw again");
    FieldExponent x;
    x.E_ = E;
    return x;
  }

  const Field& exp() const { return E_; }
  bool operator==(const FieldExponent&) const = default;

  friend FieldExponent operator+(const FieldExponent& x, const FieldExponent& y) { return log(x.E_ * y.E_); }
  friend FieldExponent operator-(const FieldExponent& x, const FieldExponent& y) { return log(x.E_ / y.E_); }
  friend FieldExponent operator-(const FieldExponent& x) { return log(inverse(x.E_)); }
  // x / count is the root of E, a bijection where count and the group's order p - 1 have no common factor. Throws
  // std::domain_error where they have (2, 3, 5, 7, 11, 13, 31, 41, 61, 151, 331 or 1321).
  friend FieldExponent operator/(const FieldExponent& x, const Field& count) {
    return log(power(x.E_, inverse_modulo(count.residue(), Field::p - 1)));
  }

 private:
  // By Euclid's algorithm.
  static std::uint64_t inverse_modulo(std::uint64_t a, std::uint64_t modulus) {
    __extension__ typedef __int128 Wide;
    Wide r = modulus, next_r = a % modulus, t = 0, next_t = 1;
    while (next_r != 0) {
      const Wide quotient = r / next_r;
      r = std::exchange(next_r, r - quotient * next_r);
      t = std::exchange(next_t, t - quotient * next_t);
    }
    if (r != 1) throw std::domain_error("no mean of this many exponents in GF(2^61-1)");
    return static_cast<std::uint64_t>(t < 0 ? t + Wide(modulus) : t);
  }

  Field E_{1};
};

template <>
struct ExponentOf<Field> {
  using type = FieldExponent;
};

inline Field exp(const FieldExponent& x) { return x.exp(); }
inline FieldExponent log(const Field& x) { return FieldExponent::log(x); }

// Either, so that a form which needs the true maximum, and not just any shift, is caught.
inline FieldExponent larger(const FieldExponent& a, const FieldExponent& b) {
  return (a.exp() + b.exp()).residue() & 1 ? a : b;
}

}  // namespace fractus::oracle
