// GF(2^61-1): if its arithmetic were off, every identity that is "proven" over it would be worth nothing.
#include "oracle/field.h"

#include "tests/oracle/property.h"

namespace fractus::oracle {
namespace {

__extension__ typedef unsigned __int128 Unsigned128;
__extension__ typedef __int128 Signed128;

constexpr auto p = static_cast<std::int64_t>(Field::p);

// All residues, the borders of the reduction more often than chance would have them.
rc::Gen<Field> field() {
  using rc::gen::inRange;
  const auto within = [](std::int64_t low, std::int64_t high) { return inRange<std::int64_t>(low, high); };
  const auto residue = rc::gen::weightedOneOf<std::int64_t>(
      {{4, within(0, p)}, {1, within(0, 4)}, {1, within(p - 3, p)}, {1, within(p / 2 - 2, p / 2 + 3)}});
  return rc::gen::resize(rc::kNominalSize, rc::gen::map(residue, [](std::int64_t x) { return Field(x); }));
}

// The product by plain division, which is slow and obvious.
std::uint64_t product_mod_p(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<Unsigned128>(a) * b % Field::p);
}

// Protects: the laws that a form's rewriting relies on (reassociation, distribution, subtraction, division).
TEST(Field, ObeysTheAxioms) {
  EXPECT_TRUE(holds(5000, [] {
    const Field a = *field(), b = *field(), c = *field(), zero(0), one(1);
    RC_ASSERT(a + b == b + a);
    RC_ASSERT(a * b == b * a);
    RC_ASSERT((a + b) + c == a + (b + c));
    RC_ASSERT((a * b) * c == a * (b * c));
    RC_ASSERT(a * (b + c) == a * b + a * c);
    RC_ASSERT(a + zero == a);
    RC_ASSERT(a * one == a);
    RC_ASSERT(a + (-a) == zero);
    RC_ASSERT(a - b == a + (-b));
    if (b != zero) RC_ASSERT((a / b) * b == a);
  }));
}

// Protects: the Mersenne reduction, against 128-bit remainders; results stay canonical, so that == is equality.
TEST(Field, ReducesLikePlainDivision) {
  EXPECT_TRUE(holds(5000, [] {
    const Field a = *field(), b = *field();
    RC_ASSERT((a * b).residue() == product_mod_p(a.residue(), b.residue()));
    RC_ASSERT((a + b).residue() == (a.residue() + b.residue()) % Field::p);
    RC_ASSERT((a - b).residue() == (a.residue() + Field::p - b.residue()) % Field::p);
  }));
}

// Protects: the borders by name. (p-1)^2 = 1, (p-1) + 1 = 0, and p itself is 0.
TEST(Field, BordersOfTheReduction) {
  EXPECT_EQ(Field(p - 1) * Field(p - 1), Field(1));
  EXPECT_EQ(Field(p - 1) + Field(1), Field(0));
  EXPECT_EQ(Field(p), Field(0));
  EXPECT_EQ((-Field(0)).residue(), 0U);
  EXPECT_EQ(Field(std::int64_t{1} << 60) * Field(2), Field(1));  // 2^61 = 1
}

// Protects: negative integers, down to the one that has no positive counterpart.
TEST(Field, TakesNegativeIntegers) {
  EXPECT_TRUE(holds(2000, [] {
    const auto x = *rc::gen::arbitrary<std::int64_t>();
    const auto wanted = static_cast<std::int64_t>(((static_cast<Signed128>(x) % p) + p) % p);
    RC_ASSERT(Field(x).residue() == static_cast<std::uint64_t>(wanted));
  }));
  EXPECT_EQ(Field(-1) + Field(1), Field(0));
  EXPECT_EQ(Field(-p), Field(0));
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(Field(lowest) + Field(std::numeric_limits<std::int64_t>::max()), Field(-1));
}

// Protects: a pole is reported and not computed with: 1/0 := anything would make different functions agree.
TEST(Field, DivisionByZeroThrows) {
  EXPECT_THROW(Field(1) / Field(0), std::domain_error);
  EXPECT_THROW(Field(0) / Field(p), std::domain_error);
  EXPECT_NO_THROW(Field(0) / Field(1));
}

// Protects: the contract's epsilon is 10^-20 in the field too, and Fermat's inverse is one.
TEST(Field, PowersOfTen) {
  EXPECT_EQ(power_of_ten<Field>(0), Field(1));
  EXPECT_EQ(power_of_ten<Field>(3), Field(1000));
  for (int exponent : {1, 10, 20}) EXPECT_EQ(power_of_ten<Field>(exponent) * power_of_ten<Field>(-exponent), Field(1));
  EXPECT_EQ(power_of_ten<Field>(-20) * Field(10), power_of_ten<Field>(-19));
}

// Negative control: a reduction that loses the upper bits' carry is caught by plain division in most draws.
TEST(Field, PlainDivisionCatchesALostCarry) {
  int caught = 0;
  EXPECT_TRUE(holds(1000, [&] {
    const Field a = *field(), b = *field();
    const auto product = static_cast<Unsigned128>(a.residue()) * b.residue();
    caught += (static_cast<std::uint64_t>(product) & Field::p) != product_mod_p(a.residue(), b.residue());
  }));
  EXPECT_GT(caught, 500);
}

}  // namespace
}  // namespace fractus::oracle
