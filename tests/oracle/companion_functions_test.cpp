// Roots, angles, sin, cos and tanh of Companions: an interval, the points in it and what a kernel's library may make of
// them, against 50 digits; and the same functions on the tape.
#include "oracle/companion_functions.h"

#include <fmt/format.h>

#include <array>

#include "oracle/exact.h"
#include "oracle/tape_functions.h"
#include "tests/oracle/draws.h"
#include "tests/oracle/property.h"

namespace fractus::oracle {
namespace {

using linear_attention::Values;

constexpr double own_rounding = 1 + 0x1p-30;  // of e and m, which are doubles; `expected` widens by the same factor

// exact in both bases
Float50 exactly(double x) { return Float50(x); }
Float50 exactly(long double x) {
  const auto high = static_cast<double>(x);
  return Float50(high) + Float50(static_cast<double>(x - high));
}

enum class Function { sine, cosine, hyperbolic, root, angle, turned_sine, turned_cosine };
constexpr Function functions[] = {Function::sine,  Function::cosine,      Function::hyperbolic,   Function::root,
                                  Function::angle, Function::turned_sine, Function::turned_cosine};

// One of the functions; only the last three look at b.
template <class R>
R value_of(Function f, const R& a, const R& b) {
  switch (f) {
    case Function::sine: return sin_of(a);
    case Function::cosine: return cos_of(a);
    case Function::hyperbolic: return tanh_of(a);
    case Function::root: return sqrt_of(a);
    case Function::angle: return atan2_of(a, b);
    case Function::turned_sine: return sin_of_difference(a, b);
    case Function::turned_cosine: return cos_of_difference(a, b);
  }
  return a;
}

// A Companion of any size whose error lies anywhere between nothing and its own size, and where a kernel's number lies
// in it: at one of the ends half of the time.
template <DType judged>
struct Operand {
  Companion<judged> companion;
  Float50 at;

  Operand(Values& values, Function f) {
    const bool periodic = f != Function::hyperbolic && f != Function::root && f != Function::angle;
    double v = values.sign() * (periodic ? values.uniform(0, values.chance(0.5) ? 7 : 5000) : values.magnitude(-8, 4));
    if (f == Function::root) v = std::fabs(v);
    const double n = values.chance(0.3) ? 0 : std::floor(values.uniform(0, 20));
    const double e = values.chance(0.3) ? 0 : std::fabs(v) * values.magnitude(-30, 0);
    companion = {Base<judged>(v), std::fabs(v), n, e, 1};
    at = Float50(v) + Float50(error(companion)) * (values.chance(0.5) ? values.sign() : values.uniform(-1, 1));
  }
};

struct Trial {
  double missed = 0, bound = 0, without_carried = 0, base_missed = 0, radius = 0;
};

// A kernel's value at its own numbers, as wrong as the library may be, and the base's own value, which is off by up to
// the radius itself.
template <DType judged>
Trial trial(std::uint64_t seed, Function f) {
  Values values(seed);
  const Operand<judged> a(values, f), b(values, f);
  const Companion<judged> result = value_of(f, a.companion, b.companion);
  Trial t;
  t.bound = error(result) * own_rounding;
  if (result.e >= unbounded) return t;
  const double u = unit_roundoff(judged);
  const Float50 rounding = (f == Function::root ? root_roundings : trigonometric_roundings) * u * values.sign();
  Float50 truth = value_of(f, a.at, b.at);
  if (f == Function::turned_sine || f == Function::turned_cosine) {  // the difference is rounded before
    const Float50 difference = Float50(a.at - b.at) * (1 + Float50(u * values.sign()));
    truth = f == Function::turned_sine ? sin(difference) : cos(difference);
  }
  Float50 missed = Float50(truth * (1 + rounding)) - exactly(result.v);
  const Float50 turn = 2 * acos(Float50(-1));
  if (f == Function::angle && abs(missed) > turn / 2) missed -= missed > 0 ? turn : -turn;
  t.missed = static_cast<double>(abs(missed));
  t.without_carried = gamma<judged>(result.n) * result.m;
  t.radius = t.bound * 2 * BaseOf<judged>::unit_roundoff / u;
  t.base_missed = static_cast<double>(
      abs(Float50(exactly(result.v) - value_of(f, exactly(a.companion.v), exactly(b.companion.v)))));
  return t;
}

template <DType judged>
std::string wrong_with(std::uint64_t seed, Function f) {
  const Trial t = trial<judged>(seed, f);
  if (!(t.missed <= t.bound + t.radius))
    return fmt::format("function {}: off by {}, bound {}", int(f), t.missed, t.bound);
  if (!(t.base_missed <= t.radius))
    return fmt::format("function {}: v off by {}, radius {}", int(f), t.base_missed, t.radius);
  return "";
}

template <DType judged>
testing::AssertionResult steps_hold(int count) {
  return holds(count, [] {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30));
    for (const Function f : functions)
      if (const std::string wrong = wrong_with<judged>(seed, f); !wrong.empty()) return wrong;
    return std::string();
  });
}

// Protects: the certified step of each function, at any point of any interval, library's roundings included.
TEST(CompanionFunctions, BoundHoldsOverTheWholeIntervalFloat32) { EXPECT_TRUE(steps_hold<DType::float32>(4000)); }
TEST(CompanionFunctions, BoundHoldsOverTheWholeIntervalFloat64) { EXPECT_TRUE(steps_hold<DType::float64>(2000)); }

// Negative control: half of the bound, and the bound without what the interval carries, are exceeded by each function.
TEST(CompanionFunctions, LessThanTheBoundIsExceeded) {
  for (const Function f : functions) {
    int beyond_half = 0, beyond_uncarried = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      const Trial t = trial<DType::float32>(seed, f);
      if (t.missed > t.bound / 2) ++beyond_half;
      if (t.missed > t.without_carried) ++beyond_uncarried;
    }
    EXPECT_GT(beyond_half, 0) << "function " << int(f);
    EXPECT_GT(beyond_uncarried, 0) << "function " << int(f);
  }
}

// Protects: a derivative at the midpoint is not taken for the interval's. cos at 0 has none, but moves by e^2/2; tanh
// far out has none, but an interval that reaches back to 0 has all of it.
TEST(CompanionFunctions, TheIntervalIsCarriedAndNotTheMidpointsDerivative) {
  using Number = Companion<DType::float32>;
  const Number wide(0.0, 0, 0, 0.1, 1);
  EXPECT_GE(error(cos(wide)), 1 - std::cos(0.1));
  const Number far(30.0, 30, 0, 30, 1);
  EXPECT_GE(error(tanh(far)), std::tanh(30.0));
  const Number low(1.0, 1, 0, 0.99, 1);
  EXPECT_GE(error(sqrt(low)), 1 - std::sqrt(0.01));
}

// Protects: no angle is claimed where the resultant may be 0, no root where the number may be below it; and an angle
// that the branch cut may take from pi to -pi keeps its bound, which is one on the circle.
TEST(CompanionFunctions, NoBoundWhereTheFunctionHasNone) {
  using Number = Companion<DType::float32>;
  const Number small(1e-7, 1, 4, 0, 1), one(1), minus_one(-1), zero(0);
  EXPECT_GE(error(atan2(small, small)), unbounded);
  EXPECT_GE(error(atan2(zero, zero)), unbounded);
  EXPECT_LT(error(atan2(small, one)), 1e-6);
  EXPECT_GE(error(sqrt(Number(1e-8, 1, 4, 0, 1))), unbounded);
  EXPECT_GE(error(sqrt(minus_one)), unbounded);

  const Number angle = atan2(small, minus_one);  // a kernel may have y = -1e-7, and so an angle just above -pi
  EXPECT_LT(error(angle), 2e-6);
  EXPECT_LT(error(cos_of_difference(angle, Number(6.25))), 4e-6);
  EXPECT_EQ(error(atan2(zero, one)), 0) << "all phases 0: the tie at angle 0 is one without a rounding";
}

// A program with every function, at constants that float holds.
template <class R>
R program(const R& x, const R& y, const R& z) {
  const R angle = atan2_of(sin_of(x) + sin_of(y), cos_of(x) + cos_of(y));
  const R turned = cos_of_difference(angle, z) * sin_of_difference(angle, x);
  return tanh_of(turned * R(0.75)) / sqrt_of(R(1.5) + z * z) + sin_of(y - z) * cos_of(x);
}

template <class R>
struct Gradient {
  R value{0}, x{0}, y{0}, z{0};
};

template <class R>
Gradient<R> taped_program(double x, double y, double z) {
  Tape<R> tape;
  Taped<R>::tape = &tape;
  const Taped<R> a = Taped<R>::leaf(R(x)), b = Taped<R>::leaf(R(y)), c = Taped<R>::leaf(R(z));
  const Taped<R> result = program(a, b, c);
  std::vector<R> seeds(tape.size(), R(0));
  seeds[result.node] = R(1);
  const std::vector<R> pulled = tape.pull_back(seeds);
  Taped<R>::tape = nullptr;
  return {result.value, pulled[a.node], pulled[b.node], pulled[c.node]};
}

template <class R>
std::array<R, 4> parts(const Gradient<R>& g) {
  return {g.value, g.x, g.y, g.z};
}

template <DType judged>
std::string wrong_gradient(std::uint64_t seed, double share_of_bound) {
  Values values(seed);
  const auto angle = [&] { return rounded(values.uniform(-7, 7), judged); };
  const double x = angle(), y = angle(), z = angle();
  const auto bounds = parts(taped_program<Companion<judged>>(x, y, z));
  const auto kernel = parts(taped_program<std::conditional_t<judged == DType::float32, float, double>>(x, y, z));
  const auto truth = parts(taped_program<Float50>(x, y, z));
  for (std::size_t i = 0; i < 4; ++i) {
    const double bound = error(bounds[i]) * own_rounding;
    if (bound >= unbounded) continue;
    const auto missed = static_cast<double>(abs(Float50(Float50(kernel[i]) - truth[i])));
    if (!(missed <= bound * share_of_bound)) return fmt::format("part {}: off by {}, bound {}", i, missed, bound);
    const auto base = static_cast<double>(abs(Float50(exactly(bounds[i].v) - truth[i])));
    if (!(base <= bound * 2 * BaseOf<judged>::unit_roundoff / unit_roundoff(judged)))
      return fmt::format("part {}: v is off by {}, bound {}", i, base, bound);
  }
  return "";
}

// Protects: the tape over Companion bounds what the tape over the judged type itself computes, value and gradients.
TEST(CompanionFunctions, TapeOverCompanionBoundsTheKernelsTape) {
  const auto tapes_hold = [](auto wrong) {
    return holds(500, [&] {
      return wrong(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30)), 1.0);
    });
  };
  EXPECT_TRUE(tapes_hold(wrong_gradient<DType::float32>));
  EXPECT_TRUE(tapes_hold(wrong_gradient<DType::float64>));
  // Negative control: a thousandth of the bound is not one.
  int caught = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) caught += !wrong_gradient<DType::float32>(seed, 1e-3).empty();
  EXPECT_GT(caught, 50);
}

// Protects: each derivative on the tape, against central differences in 50 digits.
TEST(TapeFunctions, DerivativesAreThose) {
  Values values(1);
  for (int draw = 0; draw < 20; ++draw) {
    const double x[] = {values.uniform(-3, 3), values.uniform(-3, 3), values.uniform(-3, 3)};
    const auto gradient = parts(taped_program<Float50>(x[0], x[1], x[2]));
    const Float50 h("1e-17");
    for (std::size_t i = 0; i < 3; ++i) {
      Float50 above[] = {Float50(x[0]), Float50(x[1]), Float50(x[2])}, below[] = {above[0], above[1], above[2]};
      above[i] += h;
      below[i] -= h;
      const Float50 difference =
          (program(above[0], above[1], above[2]) - program(below[0], below[1], below[2])) / (2 * h);
      EXPECT_LT(static_cast<double>(abs(Float50(difference - gradient[i + 1]))),
                1e-25 * (1 + static_cast<double>(abs(difference))))
          << "input " << i;
    }
  }
}

// Protects: a constant on the tape is the number that it was made of, not the integer below it.
TEST(TapeFunctions, AConstantKeepsItsFraction) {
  EXPECT_EQ(Taped<double>(0.5).value, 0.5);
  EXPECT_EQ(Taped<Companion<DType::float32>>(0.5).value.v, 0.5);
  EXPECT_EQ((Taped<double>(Taped<double>(0.25)).value), 0.25);
  EXPECT_EQ(Taped<double>(0.5).node, Tape<double>::constant);
}

}  // namespace
}  // namespace fractus::oracle
