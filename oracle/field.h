// GF(p), p = 2^61 - 1: arithmetic without rounding. Two forms of one rational function agree here at random points
// unless they differ as functions, up to a chance of degree/p a draw (Schwartz 1980, Zippel 1979).
#pragma once

#include <cstdint>
#include <stdexcept>

#include "oracle/number.h"

namespace fractus::oracle {

class Field {
 public:
  static constexpr std::uint64_t p = (std::uint64_t{1} << 61) - 1;

  Field() = default;
  explicit Field(std::int64_t x)
      : x_(x >= 0 ? static_cast<std::uint64_t>(x) % p : p - 1 - (static_cast<std::uint64_t>(-(x + 1)) % p)) {}

  std::uint64_t residue() const { return x_; }
  bool operator==(const Field&) const = default;

  friend Field operator+(Field a, Field b) { return reduced(a.x_ + b.x_); }
  friend Field operator-(Field a, Field b) { return reduced(a.x_ + p - b.x_); }
  friend Field operator-(Field a) { return reduced(p - a.x_); }
  friend Field operator*(Field a, Field b) {
    // 2^61 = 1 mod p, so the upper bits of the 122-bit product are added to the lower ones.
    const auto product = static_cast<unsigned __int128>(a.x_) * b.x_;
    return reduced((static_cast<std::uint64_t>(product) & p) + static_cast<std::uint64_t>(product >> 61));
  }
  // Throws std::domain_error for 0: the draw hit a pole and has to be drawn again.
  friend Field operator/(Field a, Field b) { return a * inverse(b); }
  friend Field power(Field a, std::uint64_t exponent) {
    Field result(1);
    for (; exponent != 0; exponent >>= 1, a = a * a)
      if (exponent & 1) result = result * a;
    return result;
  }
  friend Field inverse(Field a) {
    if (a.x_ == 0) throw std::domain_error("division by 0 in GF(2^61-1): draw again");
    return power(a, p - 2);  // Fermat
  }

 private:
  static Field reduced(std::uint64_t x) {
    Field result;
    result.x_ = x >= p ? x - p : x;
    return result;
  }

  std::uint64_t x_ = 0;
};

template <>
struct PowerOfTen<Field> {
  static Field of(int exponent) {
    const Field magnitude = power(Field(10), static_cast<std::uint64_t>(exponent < 0 ? -exponent : exponent));
    return exponent < 0 ? inverse(magnitude) : magnitude;
  }
};

// A random point is generic: it lies on no cut.
inline Branch branch(const Field&, int) { return Branch::divide; }

}  // namespace fractus::oracle
