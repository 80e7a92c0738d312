// einsum = looped = cumsum = chunked, as functions: equal at random points of GF(2^61-1), gradients too.
#include "tests/oracle/forms.h"

#include "tests/oracle/algebra.h"
#include "tests/oracle/property.h"
#include "tests/oracle/taped.h"

namespace fractus::oracle::linear_attention {
namespace {

template <class R>
struct NamedForm {
  const char* name;
  std::function<Outputs<R>(const Inputs<R>&)> run;
};

template <class R>
std::vector<NamedForm<R>> right_forms(std::size_t block) {
  return {{"looped", [](const Inputs<R>& in) { return looped(in); }},
          {"einsum", [](const Inputs<R>& in) { return einsum(in); }},
          {"cumsum", [](const Inputs<R>& in) { return cumsum(in); }},
          {"chunked", [block](const Inputs<R>& in) { return chunked(in, block); }}};
}

// The first form that differs from the definition at this point.
std::string differing(const Inputs<Field>& inputs, std::size_t block) {
  const Outputs<Field> definition = evaluate<Field>(inputs, nullptr, {}).outputs;
  for (const auto& form : right_forms<Field>(block))
    if (!same(form.run(inputs), definition)) return form.name;
  return "";
}

// Protects: the definition says what all four known forms say, for every length, block and ragged tail, with and
// without a carry. Degree 5: two different functions agree at a point with a chance of 2e-18.
TEST(Forms, EqualTheDefinition) {
  EXPECT_TRUE(holds(500, [] {
    const Draw draw = *draws(20, 5);
    const auto block = static_cast<std::size_t>(*rc::gen::inRange(1, 23));
    return differing(field_point(draw).first, block);
  }));
}

// Protects: T = 0 hands the carry on unchanged.
TEST(Forms, EqualTheDefinitionWithoutTokens) {
  EXPECT_EQ(differing(field_point({0, 3, Fill::features, 5}).first, 4), "");
}

// Protects: what autograd makes of each form is what the hand-written adjoint says.
TEST(Forms, GradientsEqualTheAdjoint) {
  EXPECT_TRUE(holds(60, [] {
    const Draw draw = *draws(7, 3);
    const auto block = static_cast<std::size_t>(*rc::gen::inRange(1, 9));
    const auto [inputs, cotangents] = field_point(draw);
    const Gradients<Field> adjoint = *evaluate<Field>(inputs, &cotangents, {}).gradients;
    for (const auto& form : right_forms<Taped<Field>>(block))
      if (!same(taped_gradients<Field>(inputs, cotangents, form.run), adjoint)) return std::string(form.name);
    return std::string();
  }));
}

// Negative controls: the two faults that forms of this kernel are prone to are found at the first point.
TEST(Forms, AnExclusiveSumDiffers) {
  const Inputs<Field> inputs = field_point({1, 1, Fill::features, 3}).first;
  EXPECT_FALSE(same(looped(inputs, true), evaluate<Field>(inputs, nullptr, {}).outputs));
}

TEST(Forms, ALostTailDiffers) {
  const Inputs<Field> inputs = field_point({5, 2, Fill::features, 3}).first;
  const Outputs<Field> definition = evaluate<Field>(inputs, nullptr, {}).outputs;
  EXPECT_FALSE(same(chunked(inputs, 4, true), definition));
  EXPECT_TRUE(same(chunked(inputs, 5, true), definition)) << "there is no tail to lose";
}

}  // namespace
}  // namespace fractus::oracle::linear_attention
