// Arithmetic of GF(2^31-1) and GF(2^61-1), one element at a time. Residues are canonical: 0 <= x < p.
//
// Written for the device alone: the definitions that the device is held against have arithmetic of their own
// (oracle/field.h), so that a fault here does not hide itself.
#pragma once

#include <cstdint>

namespace fractus::field {

__extension__ typedef unsigned __int128 Wide;

template <int bits>
struct Prime {
  static_assert(bits == 31 || bits == 61, "the exponents of Mersenne primes that a float's and a double's slot hold");

  static constexpr std::uint64_t p = (std::uint64_t{1} << bits) - 1;

  // x < 2^(2 bits) for 31 and x < 2^64 for 61. 2^bits = 1 mod p, so the bits above are added to those below.
  static constexpr std::uint64_t reduced(std::uint64_t x) {
    x = (x & p) + (x >> bits);  // at most 2p+1 for 31, p+7 for 61: one subtraction is left
    return x >= p ? x - p : x;
  }

  static constexpr std::uint64_t add(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t sum = a + b;  // < 2^62
    return sum >= p ? sum - p : sum;
  }
  static constexpr std::uint64_t subtract(std::uint64_t a, std::uint64_t b) { return a >= b ? a - b : a + p - b; }
  static constexpr std::uint64_t negate(std::uint64_t a) { return a == 0 ? 0 : p - a; }

  static constexpr std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
    if constexpr (bits == 31) {
      return reduced(a * b);  // (p-1)^2 < 2^62, and its bits above 31 are below p
    } else {
      const auto product = static_cast<Wide>(a) * b;  // < 2^122
      return reduced((static_cast<std::uint64_t>(product) & p) + static_cast<std::uint64_t>(product >> 61));
    }
  }

  static constexpr std::uint64_t power(std::uint64_t a, std::uint64_t exponent) {
    std::uint64_t result = 1;
    for (; exponent != 0; exponent >>= 1, a = multiply(a, a))
      if (exponent & 1) result = multiply(result, a);
    return result;
  }

  // Of a != 0, by Fermat.
  static constexpr std::uint64_t inverse(std::uint64_t a) { return power(a, p - 2); }

  static constexpr std::uint64_t of(std::int64_t x) {
    const auto signed_p = static_cast<std::int64_t>(p);
    const std::int64_t rest = x % signed_p;
    return static_cast<std::uint64_t>(rest < 0 ? rest + signed_p : rest);
  }

  // x 2^k of a residue: the `bits` bits of x turn round.
  static constexpr std::uint64_t shifted(std::uint64_t x, int k) { return ((x << k) & p) | (x >> (bits - k)); }
};

}  // namespace fractus::field
