// The rational that a constant of a program stands for. In a program over the reals 0.1 is a tenth, and the double next
// to it is an accident of the notation; over a field there is no "next to", so the notation has to be read.
#pragma once

#include <cstdint>

namespace fractus::field {

// numerator / denominator 2^binary 10^decimal.
struct Rational {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;
  int binary = 0;
  int decimal = 0;

  bool operator==(const Rational&) const = default;
};

// Reads a finite constant, by the first of these that is it:
// - a whole number up to 2^53 (a float: 2^24), below which none is rounded: itself;
// - a double that is a float exactly: as that float, since C++ widens 0.1f;
// - a number with up to 20 bits from its first to its last 1 (a float: 10): itself, as 2^-24 is meant;
// - the fraction of two numbers up to 2^20 that rounds to it (of a float: whose product is up to 2^16). There is at
// most
//   one, since two such fractions are further apart than a unit in the last place; and few numbers look like one by
//   chance: between 1 and 2 about one double in 2^14, one float in 2^9;
// - the shortest decimal that rounds to it in its own type.
// Not finite: throws std::domain_error.
Rational read(double x);
Rational read(float x);

// In GF(2^bits-1). Throws std::domain_error for a denominator that is 0 there.
std::uint64_t residue(const Rational& x, int bits);

}  // namespace fractus::field
