// GF(2^31-1) and GF(2^61-1): if their arithmetic were off, every identity that is "proven" over them would be worth
// nothing.
#include "oracle/field.h"

#include <boost/multiprecision/cpp_int.hpp>

#include "tests/oracle/property.h"

namespace fractus::oracle {
namespace {

using Integer = boost::multiprecision::cpp_int;

template <class F>
constexpr auto p = static_cast<std::int64_t>(F::p);

template <class F>
class Field : public testing::Test {};
using Fields = testing::Types<PrimeField<31>, PrimeField<61>>;
TYPED_TEST_SUITE(Field, Fields);

// All residues, the borders of the reduction more often than chance would have them.
template <class F>
rc::Gen<F> field() {
  using rc::gen::inRange;
  const auto within = [](std::int64_t low, std::int64_t high) { return inRange<std::int64_t>(low, high); };
  const auto residue = rc::gen::weightedOneOf<std::int64_t>(
      {{4, within(0, p<F>)}, {1, within(0, 4)}, {1, within(p<F> - 3, p<F>)}, {1, within(p<F> / 2 - 2, p<F> / 2 + 3)}});
  return rc::gen::resize(rc::kNominalSize, rc::gen::map(residue, [](std::int64_t x) { return F(x); }));
}

// The product by plain division, which is slow and obvious.
template <class F>
std::uint64_t product_mod_p(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(Integer(a) * b % F::p);
}

// Protects: the laws that a form's rewriting relies on (reassociation, distribution, subtraction, division).
TYPED_TEST(Field, ObeysTheAxioms) {
  using F = TypeParam;
  EXPECT_TRUE(holds(5000, [] {
    const F a = *field<F>(), b = *field<F>(), c = *field<F>(), zero(0), one(1);
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
TYPED_TEST(Field, ReducesLikePlainDivision) {
  using F = TypeParam;
  EXPECT_TRUE(holds(5000, [] {
    const F a = *field<F>(), b = *field<F>();
    RC_ASSERT((a * b).residue() == product_mod_p<F>(a.residue(), b.residue()));
    RC_ASSERT((a + b).residue() == (a.residue() + b.residue()) % F::p);
    RC_ASSERT((a - b).residue() == (a.residue() + F::p - b.residue()) % F::p);
  }));
}

// Protects: the borders by name. (p-1)^2 = 1, (p-1) + 1 = 0, and p itself is 0.
TYPED_TEST(Field, BordersOfTheReduction) {
  using F = TypeParam;
  EXPECT_EQ(F(p<F> - 1) * F(p<F> - 1), F(1));
  EXPECT_EQ(F(p<F> - 1) + F(1), F(0));
  EXPECT_EQ(F(p<F>), F(0));
  EXPECT_EQ((-F(0)).residue(), 0U);
  EXPECT_EQ(F((p<F> + 1) / 2) * F(2), F(1));  // 2^bits = 1
}

// Protects: negative integers, down to the one that has no positive counterpart.
TYPED_TEST(Field, TakesNegativeIntegers) {
  using F = TypeParam;
  EXPECT_TRUE(holds(2000, [] {
    const auto x = *rc::gen::arbitrary<std::int64_t>();
    const auto wanted = static_cast<std::int64_t>((Integer(x) % p<F> + p<F>) % p<F>);
    RC_ASSERT(F(x).residue() == static_cast<std::uint64_t>(wanted));
  }));
  EXPECT_EQ(F(-1) + F(1), F(0));
  EXPECT_EQ(F(-p<F>), F(0));
  const std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(F(lowest) + F(std::numeric_limits<std::int64_t>::max()), F(-1));
}

// Protects: a pole is reported and not computed with: 1/0 := anything would make different functions agree.
TYPED_TEST(Field, DivisionByZeroThrows) {
  using F = TypeParam;
  EXPECT_THROW(F(1) / F(0), std::domain_error);
  EXPECT_THROW(F(0) / F(p<F>), std::domain_error);
  EXPECT_NO_THROW(F(0) / F(1));
}

// Protects: the contract's epsilon is 10^-20 in the field too, and Fermat's inverse is one.
TYPED_TEST(Field, PowersOfTen) {
  using F = TypeParam;
  EXPECT_EQ(power_of_ten<F>(0), F(1));
  EXPECT_EQ(power_of_ten<F>(3), F(1000));
  for (int exponent : {1, 10, 20}) EXPECT_EQ(power_of_ten<F>(exponent) * power_of_ten<F>(-exponent), F(1));
  EXPECT_EQ(power_of_ten<F>(-20) * F(10), power_of_ten<F>(-19));
}

// Negative control: a reduction that loses the upper bits' carry is caught by plain division in most draws.
TYPED_TEST(Field, PlainDivisionCatchesALostCarry) {
  using F = TypeParam;
  int caught = 0;
  EXPECT_TRUE(holds(1000, [&] {
    const F a = *field<F>(), b = *field<F>();
    const Integer low = Integer(a.residue()) * b.residue() & F::p;
    caught += static_cast<std::uint64_t>(low) != product_mod_p<F>(a.residue(), b.residue());
  }));
  EXPECT_GT(caught, 500);
}

}  // namespace
}  // namespace fractus::oracle
