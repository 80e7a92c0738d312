// GF(p), p = 2^bits - 1 prime, 31 or 61 bits: arithmetic without rounding. Two forms of one rational function agree
// here at random points unless they differ as functions, up to a chance of degree/p a draw (Schwartz 1980, Zippel
// 1979).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "oracle/number.h"

namespace fractus::oracle {

template <int bits>
class PrimeField {
  static_assert(bits == 31 || bits == 61, "2^bits - 1 has to be prime, and a product of two residues below 2^122");

 public:
  static constexpr std::uint64_t p = (std::uint64_t{1} << bits) - 1;

  PrimeField() = default;
  explicit PrimeField(std::int64_t x)
      : x_(x >= 0 ? static_cast<std::uint64_t>(x) % p : p - 1 - (static_cast<std::uint64_t>(-(x + 1)) % p)) {}

  std::uint64_t residue() const { return x_; }
  bool operator==(const PrimeField&) const = default;

  friend PrimeField operator+(PrimeField a, PrimeField b) { return reduced(a.x_ + b.x_); }
  friend PrimeField operator-(PrimeField a, PrimeField b) { return reduced(a.x_ + p - b.x_); }
  friend PrimeField operator-(PrimeField a) { return reduced(p - a.x_); }
  friend PrimeField operator*(PrimeField a, PrimeField b) {
    // 2^bits = 1 mod p, so the upper bits of the product are added to the lower ones.
    __extension__ typedef unsigned __int128 Wide;
    const auto product = static_cast<Wide>(a.x_) * b.x_;
    return reduced((static_cast<std::uint64_t>(product) & p) + static_cast<std::uint64_t>(product >> bits));
  }
  // Throws std::domain_error for 0: the draw hit a pole and has to be drawn again.
  friend PrimeField operator/(PrimeField a, PrimeField b) { return a * inverse(b); }
  friend PrimeField power(PrimeField a, std::uint64_t exponent) {
    PrimeField result(1);
    for (; exponent != 0; exponent >>= 1, a = a * a)
      if (exponent & 1) result = result * a;
    return result;
  }
  friend PrimeField inverse(PrimeField a) {
    if (a.x_ == 0) throw std::domain_error("division by 0 in GF(2^" + std::to_string(bits) + "-1): draw again");
    return power(a, p - 2);  // Fermat
  }

 private:
  static PrimeField reduced(std::uint64_t x) {
    PrimeField result;
    result.x_ = x >= p ? x - p : x;
    return result;
  }

  std::uint64_t x_ = 0;
};

using Field = PrimeField<61>;

template <int bits>
struct PowerOfTen<PrimeField<bits>> {
  static PrimeField<bits> of(int exponent) {
    const auto magnitude = power(PrimeField<bits>(10), static_cast<std::uint64_t>(exponent < 0 ? -exponent : exponent));
    return exponent < 0 ? inverse(magnitude) : magnitude;
  }
};

// A random point is generic: it lies on no cut.
template <int bits>
Branch branch(const PrimeField<bits>&, int) {
  return Branch::divide;
}

}  // namespace fractus::oracle
