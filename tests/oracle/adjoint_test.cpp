// The hand-written adjoint is the derivative of the definition: shown exactly, by the tape, and once by differences.
#include "oracle/exact.h"
#include "tests/oracle/algebra.h"
#include "tests/oracle/float50.h"
#include "tests/oracle/property.h"
#include "tests/oracle/taped.h"

namespace fractus::oracle::linear_attention {
namespace {

template <class R>
Gradients<R> by_hand(const Inputs<R>& inputs, const Cotangents<R>& cotangents) {
  return *evaluate<R>(inputs, &cotangents, {}).gradients;
}

template <class R>
Gradients<R> by_tape(const Inputs<R>& inputs, const Cotangents<R>& cotangents) {
  return taped_gradients<R>(inputs, cotangents,
                            [](const Inputs<Taped<R>>& in) { return evaluate<Taped<R>>(in, nullptr, {}).outputs; });
}

// Protects: every gradient that the tool expects of a candidate. Degree 9 or less in each step: a wrong adjoint would
// agree at a random point with a chance below 1e-15, here in hundreds of points, for every subset of the cotangents.
TEST(Adjoint, EqualsTheTapeOverTheField) {
  EXPECT_TRUE(holds(400, [](const Draw& draw) {
    const auto [inputs, cotangents] = field_point(draw);
    RC_ASSERT(same(by_hand(inputs, cotangents), by_tape(inputs, cotangents)));
  }));
}

// Small fractions, so that a cut row (den = 0) is among them: the field knows none. Both sides of the cut's constant
// too.
Rational small_fraction(Values& values) {
  const auto numerator = static_cast<int>(values.uniform(-3, 4)), denominator = static_cast<int>(values.uniform(1, 4));
  return Rational(numerator, denominator) * (values.chance(0.1) ? power_of_ten<Rational>(-10) : Rational(1));
}

// Protects: the same where rows are cut, in exact fractions.
TEST(Adjoint, EqualsTheTapeOverFractions) {
  int cut_rows = 0;
  EXPECT_TRUE(holds(150, [&] {
    const Draw draw = *draws(4, 3);
    Values values(draw.seed);
    const auto [inputs, cotangents] = point<Rational>(draw, [&] { return small_fraction(values); });
    RC_ASSERT(same(by_hand(inputs, cotangents), by_tape(inputs, cotangents)));
    for (const Row<Rational>& y : evaluate<Rational>(inputs, nullptr, {}).outputs.y)
      cut_rows += same(y, Row<Rational>(y.size()));
  }));
  EXPECT_GT(cut_rows, 20);
}

// Protects: tape and adjoint against a fault that they share, by derivatives that know neither.
TEST(Adjoint, EqualsCentralDifferences) {
  for (std::uint64_t seed : {1, 2, 3})
    EXPECT_LT(adjoint_against_differences(made({3, 3, Fill::features, seed}, DType::float64)), 1e-28);
}

// Negative control: each tensor of the gradient with the denominator's part left out, or with one token's share left
// out, differs from the tape. (The denominator's part of dk missing is fla issue 875.)
TEST(Adjoint, TheTapeCatchesADroppedTerm) {
  const auto [inputs, cotangents] = field_point({5, 3, Fill::features, 7});
  const Gradients<Field> whole = by_tape(inputs, cotangents);

  Inputs<Field> shifted = inputs;  // den -> den + 1 at every token: dden changes, all else is as before
  shifted.z0.set(0, inputs.z0.get(0) + Field(1));
  EXPECT_FALSE(same(by_hand(shifted, cotangents), whole));

  Cotangents<Field> partial = cotangents;
  (*partial.y)[2].set(1, Field(0));
  const Gradients<Field> dropped = by_hand(inputs, partial);
  EXPECT_FALSE(same(dropped.q, whole.q));
  EXPECT_FALSE(same(dropped.k, whole.k));
  EXPECT_FALSE(same(dropped.v, whole.v));
  EXPECT_FALSE(same(dropped.S0, whole.S0));
  EXPECT_FALSE(same(dropped.z0, whole.z0));

  Gradients<Field> copy = by_hand(inputs, cotangents);
  EXPECT_TRUE(same(copy, whole));
  copy.k[4].set(2, copy.k[4].get(2) - inputs.q[4].get(2));
  EXPECT_FALSE(same(copy, whole));
}

}  // namespace
}  // namespace fractus::oracle::linear_attention
