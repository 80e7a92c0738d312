// What the device reads constants as.
#include "field/constant.h"

#include <cmath>
#include <limits>

#include "tests/field/device.h"

namespace fractus {
namespace {

using field::read;
using test::Integer;

// n/d of Boost integers in a field.
std::uint64_t quotient(const Integer& n, const Integer& d, int bits) {
  return static_cast<std::uint64_t>(
      test::modulo(test::modulo(n, bits) * test::inverse(test::modulo(d, bits), bits), bits));
}

// Protects averages and other fractions of small numbers: 1/3 is a third, whatever double it rounds to.
TEST(FieldConstant, AFractionOfNumbersUpTo2To20IsThatFraction) {
  EXPECT_TRUE(rc::check("n/d", [] {
    const auto n = test::from_to(1, (1 << 20) + 1), d = test::from_to(1, (1 << 20) + 1);
    const double x = static_cast<double>(n) / static_cast<double>(d);
    for (const int bits : {31, 61}) {
      RC_ASSERT(field::residue(read(x), bits) == quotient(n, d, bits));
      RC_ASSERT(field::residue(read(-x), bits) == quotient(-n, d, bits));
    }
  }));
  EXPECT_TRUE(rc::check("n/d in float", [] {
    const auto n = test::from_to(1, 257), d = test::from_to(1, 257);
    const float x = static_cast<float>(n) / static_cast<float>(d);
    RC_ASSERT(field::residue(read(x), 61) == quotient(n, d, 61));
    RC_ASSERT(field::residue(read(static_cast<double>(x)), 61) == quotient(n, d, 61));  // as C++ widens it
  }));
}

// Protects constants as programs write them: 1e-20, 0.044715.
TEST(FieldConstant, ADecimalIsThatDecimal) {
  EXPECT_TRUE(rc::check("decimals", [] {
    const auto digits = test::from_to(1, 1000000000000);
    const auto exponent = test::from_to(-40, 20);
    const double x = std::stod(std::to_string(digits) + "e" + std::to_string(exponent));
    const Integer scale = pow(Integer(10), static_cast<unsigned>(std::abs(exponent)));
    for (const int bits : {31, 61}) {
      const std::uint64_t wanted = exponent < 0 ? quotient(digits, scale, bits) : quotient(digits * scale, 1, bits);
      RC_ASSERT(field::residue(read(x), bits) == wanted);
    }
  }));
  EXPECT_EQ(read(1e-20), (field::Rational{1, 1, 0, -20}));
  EXPECT_EQ(read(1e-10f), (field::Rational{1, 1, 0, -10}));
  EXPECT_EQ(field::residue(read(0.1f), 61), quotient(1, 10, 61));
  EXPECT_EQ(field::residue(read(static_cast<double>(0.1f)), 61), quotient(1, 10, 61));
}

// Protects machine epsilons and scales: a power of two is exact, and no short decimal next to it.
TEST(FieldConstant, APowerOfTwoIsItself) {
  for (int exponent = 1; exponent < 300; ++exponent) {
    const std::uint64_t wanted = quotient(5, Integer(1) << exponent, 61);
    EXPECT_EQ(field::residue(read(std::ldexp(5.0, -exponent)), 61), wanted) << exponent;
    if (exponent >= 120) continue;
    EXPECT_EQ(field::residue(read(std::ldexp(5.0f, -exponent)), 61), wanted) << exponent;
  }
}

TEST(FieldConstant, AWholeNumberIsItself) {
  EXPECT_TRUE(rc::check("whole numbers", [] {
    const auto n = test::from_to(-(std::int64_t{1} << 53), std::int64_t{1} << 53);
    for (const int bits : {31, 61})
      RC_ASSERT(field::residue(read(static_cast<double>(n)), bits) == quotient(n, 1, bits));
  }));
}

// What is no rational has no residue.
TEST(FieldConstant, NoFiniteNumberIsRefused) {
  for (const double x : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(read(x), std::domain_error);
}

}  // namespace
}  // namespace fractus
