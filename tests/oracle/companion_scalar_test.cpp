// Companion number by number: random straight-line programs in the judged type, in Companion and in 50 digits at once.
#include <fmt/format.h>

#include "oracle/companion.h"
#include "oracle/exact.h"
#include "tests/oracle/draws.h"
#include "tests/oracle/property.h"

namespace fractus::oracle {
namespace {

using linear_attention::Values;

template <DType judged>
using Judged = std::conditional_t<judged == DType::float32, float, double>;

template <DType judged>
struct Triple {
  Companion<judged> companion;
  Judged<judged> computed;
  Float50 truth;
};

// m and e are sums in double themselves; `expected` widens by the same factor.
constexpr double own_rounding = 1 + 0x1p-30;

template <DType judged>
Float50 exactly(const Companion<judged>& x) {
  if constexpr (judged == DType::float32)
    return Float50(x.v);
  else
    return Float50(static_cast<double>(x.v)) + Float50(static_cast<double>(x.v - static_cast<double>(x.v)));
}

template <DType judged>
std::string wrong_with(const Triple<judged>& x) {
  const Companion<judged>& c = x.companion;
  const double bound = error(c) * own_rounding;
  const auto missed = static_cast<double>(abs(Float50(Float50(x.computed) - x.truth)));
  if (!(missed <= bound))
    return fmt::format("computed is off by {}, error() is {} (n {} m {} e {})", missed, bound, c.n, c.m, c.e);
  // As expected() has it.
  const double radius = bound * 2 * BaseOf<judged>::unit_roundoff / unit_roundoff(judged);
  const auto value_missed = static_cast<double>(abs(Float50(exactly(c) - x.truth)));
  if (!(value_missed <= radius)) return fmt::format("v is off by {}, its radius is {}", value_missed, radius);
  return "";
}

// A branch that is certified is the one that a kernel takes, with the threshold as the judged type holds it.
template <DType judged>
std::string wrong_branch(const Triple<judged>& x) {
  if (x.companion.v == 0) return "";
  const int exponent = static_cast<int>(std::lround(std::log10(magnitude(x.companion.v))));
  if (std::abs(exponent) > 20) return "";
  const bool divides = std::fabs(x.computed) > static_cast<Judged<judged>>(std::pow(10.0, exponent));
  const Branch certified = branch(x.companion, exponent);
  return certified == Branch::either || divides == (certified == Branch::divide)
             ? ""
             : "the certified branch is not the one taken";
}

template <DType judged>
Triple<judged> operation(Values& values, const Triple<judged>& a, const Triple<judged>& b) {
  switch (static_cast<int>(values.uniform(0, 4))) {
    case 0: return {a.companion + b.companion, a.computed + b.computed, a.truth + b.truth};
    case 1: return {a.companion - b.companion, a.computed - b.computed, a.truth - b.truth};
    case 2: return {a.companion * b.companion, a.computed * b.computed, a.truth * b.truth};
    default:
      if (!Denominator<judged>(b.companion).bounded()) return a;
      return {a.companion / b.companion, a.computed / b.computed, a.truth / b.truth};
  }
}

template <DType judged>
std::string program(std::uint64_t seed, int steps) {
  Values values(seed);
  const double reach = values.uniform(0, 30);
  std::vector<Triple<judged>> pool;
  for (int i = 0; i < 6; ++i) {
    const double x = values.chance(0.05) ? 0 : rounded(values.sign() * values.magnitude(-reach, reach), judged);
    pool.push_back({Companion<judged>(x), static_cast<Judged<judged>>(x), Float50(x)});
  }
  for (int i = 0; i < steps; ++i) {
    const auto any = [&] {
      return pool[static_cast<std::size_t>(values.uniform(0, static_cast<double>(pool.size())))];
    };
    const Triple<judged> next = operation(values, any(), any());
    if (next.companion.m + next.companion.e > 0x1p100) continue;  // near float32's end
    for (const std::string& wrong : {wrong_with(next), wrong_branch(next)})
      if (!wrong.empty()) return wrong;
    pool.push_back(next);
  }
  return "";
}

template <DType judged>
testing::AssertionResult programs_hold(int count) {
  return holds(count, [] {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30));
    return program<judged>(seed, *rc::gen::inRange(1, 30));
  });
}

// Protects: each operator's rule, on its own and in any composition: cancellation, products below the normal range,
// quotients by what was itself computed.
TEST(CompanionScalar, ErrorBoundsFloat32Programs) { EXPECT_TRUE(programs_hold<DType::float32>(20000)); }
TEST(CompanionScalar, ErrorBoundsFloat64Programs) { EXPECT_TRUE(programs_hold<DType::float64>(4000)); }

// Protects: no bound is claimed where the sign of the denominator is in doubt.
TEST(CompanionScalar, NoBoundForADenominatorInDoubt) {
  using Number = Companion<DType::float32>;
  const Number in_doubt = (Number(1) + Number(0x1p-24)) - Number(1);  // float32 computes 0
  EXPECT_FALSE(Denominator<DType::float32>(in_doubt).bounded());
  EXPECT_GE(error(Number(1) / in_doubt), unbounded);
  EXPECT_EQ(error(Number(0) / in_doubt), 0) << "0 over anything is 0";
  EXPECT_EQ(branch(in_doubt, -10), Branch::either);
}

// Negative control: the check sees a rounding that is not counted.
TEST(CompanionScalar, AnUncountedRoundingIsCaught) {
  using Number = Companion<DType::float32>;
  const Number sum = Number(1) + Number(0x1.8p-25 + 0x1p-25);  // rounds up by nearly half an ulp
  const Triple<DType::float32> right{sum, static_cast<float>(1 + 0x1.4p-24), Float50(1 + 0x1.4p-24)};
  EXPECT_EQ(wrong_with(right), "");
  Triple<DType::float32> uncounted = right;
  uncounted.companion.n = 0;
  EXPECT_NE(wrong_with(uncounted), "");
}

}  // namespace
}  // namespace fractus::oracle
