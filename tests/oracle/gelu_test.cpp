// gelu and its derivative: against 50 digits, against the tape, and against the forms that kernels have of it.
#include "oracle/gelu.h"

#include <fmt/format.h>

#include <array>

#include "oracle/exact.h"
#include "oracle/tape_functions.h"
#include "tests/oracle/property.h"

namespace fractus::oracle {

template <class R>
struct RootOfTwoOverPi<Taped<R>> {
  static Taped<R> of() { return {RootOfTwoOverPi<R>::of(), Tape<R>::constant}; }
};

namespace {

// What a kernel may do in type T, one operation at a time: value and derivative.
template <class T>
struct Form {
  const char* name;
  Gelu<T> (*run)(T);
};

template <class T>
constexpr T root = static_cast<T>(0.79788456080286535587989211986876374L);
template <class T>
constexpr T cubic = static_cast<T>(0.044715L);

// As torch's kernels have it.
template <class T>
Gelu<T> as_torch(T x) {
  const T inner = root<T> * (x + cubic<T> * (x * x * x)), t = std::tanh(inner);
  const T left = T(0.5) * x, right = 1 + t;
  const T inner_slope = root<T> * (1 + 3 * cubic<T> * x * x);
  return {left * right, T(0.5) * right + left * (1 - t * t) * inner_slope};
}

// As autograd has it of 0.5 x (1 + tanh(c (x + k x x x))), factor by factor.
template <class T>
Gelu<T> as_autograd(T x) {
  const T kx = cubic<T> * x, kxx = kx * x, kxxx = kxx * x, t = std::tanh(root<T> * (x + kxxx)), half = T(0.5) * x;
  const T to_sum = half * (1 - t * t) * root<T>;
  T slope = (1 + t) * T(0.5);
  slope += to_sum;
  slope += to_sum * kxx;
  slope += to_sum * x * kx;
  slope += to_sum * x * x * cubic<T>;
  return {half * (1 + t), slope};
}

// x times the logistic function: nothing cancels in the tail.
template <class T>
Gelu<T> as_logistic(T x) {
  const T cube = x * x * x, s = 1 / (1 + std::exp(-2 * root<T> * (x + cubic<T> * cube)));
  return {x * s, s + x * s * (1 - s) * (2 * root<T> * (1 + 3 * cubic<T> * x * x))};
}

template <class T>
Gelu<T> in_double(T x) {
  const Gelu<double> wide = as_torch<double>(static_cast<double>(x));
  return {static_cast<T>(wide.value), static_cast<T>(wide.slope)};
}

template <class T>
std::array<Form<T>, 4> forms() {
  return {
      {{"torch", as_torch<T>}, {"autograd", as_autograd<T>}, {"logistic", as_logistic<T>}, {"double", in_double<T>}}};
}

// Is the number inside of the tolerance, and the value within its radius of 50 digits?
template <DType judged>
std::string wrong(const Companion<judged>& expected, const Float50& truth, double got) {
  const double radius = 2 * BaseOf<judged>::unit_roundoff / unit_roundoff(judged) * error(expected);
  const auto off = static_cast<double>(abs(Float50(expected.v) - truth));
  if (off > radius) return fmt::format("the value is off by {}, its radius {}", off, radius);
  const auto missed = static_cast<double>(abs(Float50(got) - truth));
  if (missed + radius > error(expected))
    return fmt::format("got {}, off by {}, tolerance {}", got, missed, error(expected));
  return "";
}

double drawn() {
  const double sign = *rc::gen::element(-1.0, 1.0);
  const double u = *rc::gen::map(rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40),
                                 [](std::int64_t i) { return std::ldexp(static_cast<double>(i), -40); });
  switch (*rc::gen::inRange(0, 4)) {
    case 0: return sign * u * 2;
    case 1: return sign * (1.5 + u);  // where the exact form is furthest away
    case 2: return sign * u * 40;     // the tails
    default: return sign * std::exp2(-u * 120);
  }
}

template <DType judged, class T>
std::string every_form_is_inside() {
  const T x = static_cast<T>(drawn());
  const Gelu<Companion<judged>> expected = gelu(Companion<judged>(static_cast<double>(x)));
  const Gelu<Float50> truth = gelu(Float50(x));
  for (const Form<T>& form : forms<T>()) {
    const Gelu<T> got = form.run(x);
    const auto refused = [&](const char* what, const std::string& text) {
      return fmt::format("{} of {} at {}: {}", what, form.name, x, text);
    };
    if (auto text = wrong(expected.value, truth.value, got.value); !text.empty()) return refused("value", text);
    if (form.name == std::string("double") && judged == DType::float64) continue;
    if (auto text = wrong(expected.slope, truth.slope, got.slope); !text.empty()) return refused("slope", text);
  }
  return "";
}

// Protects: no correct form of gelu is refused, in the tails and next to 0 least of all; and the value's radius.
TEST(Gelu, BoundsEveryForm) {
  EXPECT_TRUE(holds(20000, [] { return every_form_is_inside<DType::float32, float>(); }));
  EXPECT_TRUE(holds(5000, [] { return every_form_is_inside<DType::float64, double>(); }));
}

// Protects: what x is off by is carried on to both, whole.
TEST(Gelu, CarriesTheErrorOfItsArgument) {
  for (const double x : {-7.0, -2.0, -0.75, 0.0, 0.3, 2.0, 9.0})
    for (const double e : {1e-6, 1e-2, 0.3}) {
      using R = Companion<DType::float32>;
      const Gelu<R> expected = gelu(R(x, std::fabs(x), 0, e, std::fabs(x)));
      for (const double at : {x - e, x + e}) {
        const Gelu<double> moved = as_torch<double>(at);
        EXPECT_LE(std::fabs(moved.value - expected.value.v), error(expected.value)) << x << " " << e;
        EXPECT_LE(std::fabs(moved.slope - expected.slope.v), error(expected.slope)) << x << " " << e;
      }
    }
}

// Protects: the derivative that is written beside the function is its own.
TEST(Gelu, DerivativeEqualsTheTape) {
  for (const double x : {-5.0, -2.0, -0.75, 0.0, 0.3, 1.0, 4.0}) {
    using T = Taped<Float50>;
    Tape<Float50> tape;
    T::tape = &tape;
    const T leaf = T::leaf(Float50(x));
    const T value = gelu(leaf).value;
    std::vector<Float50> seeds(tape.size(), Float50(0));
    seeds[value.node] = Float50(1);
    const Float50 derivative = tape.pull_back(seeds)[leaf.node];
    T::tape = nullptr;
    EXPECT_LT(abs(derivative - gelu(Float50(x)).slope), Float50(1e-45)) << x;
  }
}

// Negative controls: the exact form, another constant and a sign are outside, in float32 already.
TEST(Gelu, OtherFunctionsAreOutside) {
  for (const double x : {-2.0, -1.0, 1.0, 2.0}) {
    const auto [value, slope] = gelu(Companion<DType::float32>(x));
    const double exact = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    EXPECT_GT(std::fabs(exact - value.v), 10 * error(value)) << x;
    const double rounded_constant = 0.5 * x * (1 + std::tanh(0.7978845608 * (x + 0.0447 * x * x * x)));
    EXPECT_GT(std::fabs(rounded_constant - value.v), error(value)) << x;
    const double logistic = x / (1 + std::exp(-1.702 * x));
    EXPECT_GT(std::fabs(logistic - value.v), 10 * error(value)) << x;
  }
}

}  // namespace
}  // namespace fractus::oracle
