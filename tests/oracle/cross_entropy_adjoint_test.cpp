// The adjoint of cross entropy is the derivative of its definition, and known forms of it are the same function: shown
// over GF(2^61-1), where exponents are a sort of their own, and once by differences.
#include <random>

#include "oracle/field_exponent.h"
#include "oracle/tape_exponent.h"
#include "tests/oracle/cross_entropy_draws.h"
#include "tests/oracle/cross_entropy_float50.h"
#include "tests/oracle/cross_entropy_forms.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::cross_entropy {
namespace {

// A mean of N exponents exists where N has no factor in common with 2^61 - 2.
constexpr std::size_t rows[] = {1, 17, 19, 23};

Field nonzero(std::mt19937_64& engine) { return Field(static_cast<std::int64_t>(engine() >> 4) + 1); }

Problem<Field> field_point(std::size_t N, std::size_t V, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Problem<Field> point{Dense<FieldExponent>(N, V), {}, nonzero(engine)};
  for (std::size_t n = 0; n < N; ++n) {
    for (std::size_t i = 0; i < V; ++i) point.x.set(n, i, FieldExponent::log(nonzero(engine)));
    point.targets.push_back(engine() % V);
  }
  return point;
}

Problem<Field> drawn_point() {
  const std::size_t N = rows[*rc::gen::inRange(0, 4)];
  const auto V = static_cast<std::size_t>(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, 12)));
  return field_point(N, V, *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30)));
}

bool same(const Dense<Field>& x, const Dense<Field>& y) {
  for (std::size_t r = 0; r < x.rows(); ++r)
    for (std::size_t c = 0; c < x.columns(); ++c)
      if (!(x.get(r, c) == y.get(r, c))) return false;
  return x.rows() == y.rows() && x.columns() == y.columns();
}

bool same(const FromLogits<Field>& x, const FromLogits<Field>& y) { return x.loss == y.loss && same(*x.dx, *y.dx); }

// dx by reverse mode: the loss alone is recorded, from the logits as leaves.
template <class Form>
Dense<Field> by_tape(const Problem<Field>& in, Form loss_of) {
  using T = Taped<Field>;
  Tape<Field> tape;
  T::tape = &tape;
  Dense<TapedExponent<Field>> x(in.x.rows(), in.x.columns());
  for (std::size_t n = 0; n < x.rows(); ++n)
    for (std::size_t i = 0; i < x.columns(); ++i) x.set(n, i, TapedExponent<Field>::leaf(in.x.get(n, i)));
  const TapedExponent<Field> loss = loss_of(x);
  std::vector<Field> seeds(tape.size(), Field(0));
  seeds[loss.node] = in.g;
  const std::vector<Field> pulled = tape.pull_back(seeds);
  Dense<Field> dx(x.rows(), x.columns());
  for (std::size_t n = 0; n < x.rows(); ++n)
    for (std::size_t i = 0; i < x.columns(); ++i) dx.set(n, i, pulled[x.get(n, i).node]);
  T::tape = nullptr;
  return dx;
}

Dense<Field> definition_by_tape(const Problem<Field>& in) {
  return by_tape(in, [&](const Dense<TapedExponent<Field>>& x) {
    return from_logits<Taped<Field>>(x, in.targets, std::optional<Taped<Field>>(), {}, 1).loss;
  });
}

// Protects: every gradient that the tool expects of a candidate, and that nothing flows through the shift, which stays
// on the tape. Functions of degree below 1000 that differ agree at a random point with a chance below 1e-15.
TEST(CrossEntropyAdjoint, EqualsTheTapeOverTheField) {
  EXPECT_TRUE(holds(300, [] {
    const Problem<Field> point = drawn_point();
    RC_ASSERT(same(*definition(point).dx, definition_by_tape(point)));
  }));
}

// Protects: p as exp(y - l) and as a quotient, rows in chunks with their p computed anew, and an online softmax over
// blocks of the vocabulary are one function, ragged chunks and blocks included.
TEST(CrossEntropyForms, EqualTheDefinition) {
  EXPECT_TRUE(holds(300, [] {
    const Problem<Field> point = drawn_point();
    const auto piece = static_cast<std::size_t>(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, 25)));
    const FromLogits<Field> defined = definition(point);
    RC_ASSERT(same(definition(point, Probability::quotient), defined));
    RC_ASSERT(same(chunked(point, piece), defined));
    RC_ASSERT(same(online(point, piece), defined));
  }));
}

// Protects: what autograd makes of each form is what the adjoint says.
TEST(CrossEntropyForms, GradientsEqualTheAdjoint) {
  EXPECT_TRUE(holds(100, [] {
    const Problem<Field> point = drawn_point();
    const auto piece = static_cast<std::size_t>(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, 25)));
    const Dense<Field> adjoint = *definition(point).dx;
    using T = Taped<Field>;
    const auto taped = [&](const Dense<TapedExponent<Field>>& x) { return Problem<T>{x, point.targets, T(1)}; };
    RC_ASSERT(same(by_tape(point, [&](const auto& x) { return chunked(taped(x), piece).loss; }), adjoint));
    RC_ASSERT(same(by_tape(point, [&](const auto& x) { return online(taped(x), piece).loss; }), adjoint));
  }));
}

// Negative controls: the faults that forms are prone to are found at the first point.
TEST(CrossEntropyForms, FaultsDiffer) {
  const Problem<Field> point = field_point(17, 10, 3);
  const FromLogits<Field> defined = definition(point);
  EXPECT_FALSE(online(point, 4, Slip::no_rescaling).loss == defined.loss);
  EXPECT_FALSE(online(point, 4, Slip::lost_tail).loss == defined.loss);
  EXPECT_TRUE(online(point, 5, Slip::lost_tail).loss == defined.loss) << "there is no tail to lose";
  const FromLogits<Field> dropped = chunked(point, 4, Slip::one_hot_of_last_chunk);
  EXPECT_TRUE(dropped.loss == defined.loss);
  EXPECT_FALSE(same(*dropped.dx, *defined.dx));

  Problem<Field> other = point;
  other.g = other.g + Field(1);
  EXPECT_FALSE(same(*definition(other).dx, *defined.dx));
  other = point;
  other.targets[16] = (other.targets[16] + 1) % 10;
  EXPECT_FALSE(definition(other).loss == defined.loss);
  EXPECT_FALSE(same(definition_by_tape(other), *defined.dx));
}

// Protects: the shift cancels as a whole: any common offset of a row gives the same loss and adjoint.
TEST(CrossEntropyForms, AnOffsetOfARowChangesNothing) {
  Problem<Field> point = field_point(17, 6, 4);
  const FromLogits<Field> defined = definition(point);
  const FieldExponent offset = FieldExponent::log(Field(12345));
  for (std::size_t i = 0; i < 6; ++i) point.x.set(5, i, point.x.get(5, i) + offset);
  EXPECT_TRUE(same(definition(point), defined));
  point.x.set(5, 0, point.x.get(5, 0) + offset);
  EXPECT_FALSE(definition(point).loss == defined.loss);
}

// Protects: tape and adjoint against a fault that they share, and dh and dW as well as dx, by derivatives that know
// neither.
TEST(CrossEntropyAdjoint, EqualsCentralDifferences) {
  for (std::uint64_t seed : {1, 2, 3})
    EXPECT_LT(adjoint_against_differences(made({3, 2, 5, Fill::ordinary, seed}, DType::float64)), 1e-28);
}

// Protects: the mean of exponents, which everything above rests on. Counts that share a factor with the group's order
// have none.
TEST(FieldExponent, MeansAreRoots) {
  std::mt19937_64 engine(7);
  for (int count : {1, 17, 19, 23, 29, 1009}) {
    const FieldExponent x = FieldExponent::log(nonzero(engine)), mean = x / Field(count);
    FieldExponent sum(0);
    for (int i = 0; i < count; ++i) sum = sum + mean;
    EXPECT_TRUE(sum == x) << count;
  }
  for (int count : {2, 3, 5, 7, 11, 13, 31, 41, 61, 151, 331, 1321})
    EXPECT_THROW(FieldExponent::log(Field(9)) / Field(count), std::domain_error) << count;
  EXPECT_THROW(log(Field(0)), std::domain_error);
  EXPECT_THROW(FieldExponent(1), std::domain_error);
}

}  // namespace
}  // namespace fractus::oracle::cross_entropy
