// The large products of Companions against plain sums in long double, and exp and log of one Companion.
#include "oracle/companion_dense.h"

#include <fmt/format.h>

#include "oracle/companion_softmax.h"
#include "tests/oracle/cross_entropy_draws.h"
#include "tests/oracle/property.h"

namespace fractus::oracle {
namespace {

using cross_entropy::Values;

struct Sizes {
  std::size_t N, K, M;
};

// Magnitudes over `binades` of them, so that bounds in float meet the edges of their range.
std::vector<double> drawn(Values& values, std::size_t size, double binades, DType dtype) {
  std::vector<double> list(size);
  const double centre = values.uniform(-binades, binades) / 2;
  for (double& x : list)
    x = values.chance(0.1) ? 0 : rounded(values.normal() * std::exp2(centre + values.uniform(-9, 9)), dtype);
  return list;
}

// Is the bound not below the true one, and not much above it either?
std::string compared(double bound, long double truth, long double most_below) {
  if (static_cast<long double>(bound) < truth)
    return fmt::format("bound {} below {}", bound, static_cast<double>(truth));
  if (static_cast<long double>(bound) > truth * 1.01L + most_below)
    return fmt::format("bound {} far above {}", bound, static_cast<double>(truth));
  return "";
}

// Where products of bounds fall out of float's normal range they are enlarged by up to so much, in any product here.
template <DType judged>
long double floor_of(std::size_t K, double most) {
  return static_cast<long double>(K) * 4 *
         (static_cast<long double>(std::numeric_limits<Bound<judged>>::min()) * (1 + most) +
          static_cast<long double>(underflow<judged>(most, most)));
}

template <DType judged>
std::string logits_are_bounded(const Sizes& s, std::uint64_t seed) {
  Values values(seed);
  const std::vector<double> a = drawn(values, s.N * s.K, 60, judged), b = drawn(values, s.M * s.K, 60, judged);
  const Stored<judged> x =
      times_transposed(Leaves<judged>{a.data(), s.N, s.K}, Leaves<judged>{b.data(), s.M, s.K}, 1, Sums::rounded);
  for (std::size_t r = 0; r < s.N; ++r)
    for (std::size_t c = 0; c < s.M; ++c) {
      long double v = 0, m = 0;
      for (std::size_t k = 0; k < s.K; ++k) {
        v += static_cast<long double>(a[r * s.K + k]) * b[c * s.K + k];
        m += std::fabs(static_cast<long double>(a[r * s.K + k]) * b[c * s.K + k]);
      }
      const double roundings = gamma<judged>(static_cast<double>(s.K) + 1);
      const auto i = r * s.M + c;
      if (std::fabs(static_cast<long double>(x.v[i]) - v) > 0x1p-9L * roundings * m) return "a value is off";
      if (auto wrong = compared(x.e[i], roundings * m, floor_of<judged>(s.K, 0x1p45)); !wrong.empty()) return wrong;
    }
  return "";
}

// A Dense of drawn numbers, and both of its products.
template <DType judged>
std::string products_are_bounded(const Sizes& s, std::uint64_t seed) {
  using R = Companion<judged>;
  Values values(seed);
  Dense<R> a(s.N, s.K);
  std::vector<Row<R>> rows;
  double most = 0;
  for (std::size_t r = 0; r < s.N; ++r) {
    const auto v = drawn(values, s.K, 30, judged), e = drawn(values, s.K, 30, judged);
    rows.emplace_back(s.K);
    for (std::size_t c = 0; c < s.K; ++c)
      rows[r].set(c, {v[c], std::fabs(v[c]) * 1.5, std::trunc(values.uniform(0, 20)), std::fabs(e[c]) * 0x1p-20,
                      std::fabs(v[c])});
    a.set_row(r, rows[r]);
    most = std::max(most, rows[r].w);
  }
  const std::vector<double> b = drawn(values, s.K * s.M, 30, judged), h = drawn(values, s.N * s.M, 30, judged);
  const std::size_t additions = values.index(2 * s.K);
  const Stored<judged> across = times(a, Leaves<judged>{b.data(), s.K, s.M}, additions, 1),
                       down = transposed_times(a, Leaves<judged>{h.data(), s.N, s.M}, 1);
  const auto term = [&](std::size_t r, std::size_t c, double chain) -> long double {
    const R number = rows[r].get(c);
    return gamma<judged>(number.n + 1 + chain) * static_cast<long double>(number.m + number.e) + number.e;
  };
  const long double floor = floor_of<judged>(std::max(s.K, s.N), most + 0x1p40);
  for (std::size_t i = 0; i < s.N; ++i)
    for (std::size_t j = 0; j < s.M; ++j) {
      long double v = 0, m = 0, error = 0;
      for (std::size_t k = 0; k < s.K; ++k) {
        v += static_cast<long double>(rows[i].v[k]) * b[k * s.M + j];
        m += std::fabs(static_cast<long double>(rows[i].v[k]) * b[k * s.M + j]);
        error += term(i, k, static_cast<double>(additions)) * std::fabs(b[k * s.M + j]);
      }
      if (std::fabs(static_cast<long double>(across.v[i * s.M + j]) - v) > 0x1p-40L * m) return "a value is off";
      if (auto wrong = compared(across.e[i * s.M + j], error, floor); !wrong.empty()) return "across: " + wrong;
    }
  for (std::size_t i = 0; i < s.K; ++i)
    for (std::size_t j = 0; j < s.M; ++j) {
      long double v = 0, m = 0, error = 0;
      for (std::size_t k = 0; k < s.N; ++k) {
        v += static_cast<long double>(rows[k].v[i]) * h[k * s.M + j];
        m += std::fabs(static_cast<long double>(rows[k].v[i]) * h[k * s.M + j]);
        error += term(k, i, static_cast<double>(s.N)) * std::fabs(h[k * s.M + j]);
      }
      if (std::fabs(static_cast<long double>(down.v[i * s.M + j]) - v) > 0x1p-40L * m) return "a value is off";
      if (auto wrong = compared(down.e[i * s.M + j], error, floor); !wrong.empty()) return "down: " + wrong;
    }
  return "";
}

// Rows of drawn numbers that carry errors.
template <DType judged>
std::vector<Row<Companion<judged>>> drawn_rows(Values& values, std::size_t N, std::size_t K) {
  std::vector<Row<Companion<judged>>> rows;
  for (std::size_t r = 0; r < N; ++r) {
    const auto v = drawn(values, K, 30, judged), e = drawn(values, K, 30, judged);
    const double exact = values.chance(0.3) ? 0 : 1, n = std::trunc(values.uniform(0, 20));
    rows.emplace_back(K);
    for (std::size_t c = 0; c < K; ++c)
      rows[r].set(c, {v[c], std::fabs(v[c]) * 1.5, n, exact * std::fabs(e[c]) * 0x1p-20, std::fabs(v[c])});
  }
  return rows;
}

template <DType judged>
Dense<Companion<judged>> dense(const std::vector<Row<Companion<judged>>>& rows, std::size_t columns) {
  Dense<Companion<judged>> result(rows.size(), columns);
  for (std::size_t r = 0; r < rows.size(); ++r) result.set_row(r, rows[r]);
  return result;
}

// What stays open has the m, n and e of a plain sum of products, element by element.
template <DType judged>
std::string open_products_are_bounded(const Sizes& s, std::uint64_t seed) {
  using R = Companion<judged>;
  Values values(seed);
  const std::vector<Row<R>> rows = drawn_rows<judged>(values, s.N, s.K);
  const std::vector<double> b = drawn(values, s.K * s.M, 30, judged), bt = drawn(values, s.M * s.K, 30, judged);
  const Dense<R> a = dense<judged>(rows, s.K);
  const Dense<R> plain = open_times(a, Leaves<judged>{b.data(), s.K, s.M}),
                 turned = open_times_transposed(a, Leaves<judged>{bt.data(), s.M, s.K});
  for (const bool transposed : {false, true}) {
    // The fullest sum: products with a leaf of 0 round nothing.
    std::ptrdiff_t terms = 0;
    for (std::size_t j = 0; j < s.M; ++j) {
      std::ptrdiff_t of_column = 0;
      for (std::size_t k = 0; k < s.K; ++k) of_column += (transposed ? bt[j * s.K + k] : b[k * s.M + j]) != 0;
      terms = std::max(terms, of_column);
    }
    for (std::size_t i = 0; i < s.N; ++i) {
      const Row<R> got = (transposed ? turned : plain).row(i);
      if (got.n != rows[i].n + 1 + static_cast<double>(terms)) return "n is off";
      if (got.w < rows[i].w) return "w is off";
      for (std::size_t j = 0; j < s.M; ++j) {
        long double v = 0, m = 0, e = 0;
        for (std::size_t k = 0; k < s.K; ++k) {
          const double leaf = transposed ? bt[j * s.K + k] : b[k * s.M + j];
          v += static_cast<long double>(rows[i].v[k]) * leaf;
          m += static_cast<long double>(rows[i].m[k]) * std::fabs(leaf);
          e += static_cast<long double>(rows[i].e[k]) * std::fabs(leaf);
        }
        const long double floor = floor_of<judged>(s.K, rows[i].w + got.w);
        if (std::fabs(static_cast<long double>(got.v[j]) - v) > 0x1p-40L * m) return "a value is off";
        if (auto wrong = compared(got.m[j], m, floor); !wrong.empty()) return "m: " + wrong;
        if (auto wrong = compared(got.e[j], e, floor); !wrong.empty()) return "e: " + wrong;
      }
    }
  }
  return "";
}

// a^T b with errors on both sides.
template <DType judged>
std::string gradients_of_matrices_are_bounded(const Sizes& s, std::uint64_t seed) {
  using R = Companion<judged>;
  Values values(seed);
  const std::vector<Row<R>> a = drawn_rows<judged>(values, s.N, s.K), b = drawn_rows<judged>(values, s.N, s.M);
  const Stored<judged> down = transposed_times(dense<judged>(a, s.K), dense<judged>(b, s.M), 1);
  double most = 0, most_n = 0;
  for (std::size_t k = 0; k < s.N; ++k) {
    most = std::max({most, a[k].w, b[k].w});
    most_n = std::max(most_n, b[k].n);
  }
  const long double floor = floor_of<judged>(2 * s.N + 1, most);  // two products
  for (std::size_t i = 0; i < s.K; ++i)
    for (std::size_t j = 0; j < s.M; ++j) {
      long double v = 0, size = 0, least = 0, at_most = 0;
      for (std::size_t k = 0; k < s.N; ++k) {
        const R x = a[k].get(i), y = b[k].get(j);
        v += static_cast<long double>(x.v) * y.v;
        const R product = x * y;
        size += std::fabs(static_cast<long double>(product.v));
        const auto with = [&](double n) {
          return gamma<judged>(n + static_cast<double>(s.N)) * static_cast<long double>(product.m + product.e) +
                 product.e;
        };
        least += with(product.n);
        at_most += with(x.n + most_n + 1);
      }
      const auto at = i * s.M + j;
      if (std::fabs(static_cast<long double>(down.v[at]) - v) > 0x1p-40L * size) return "a value is off";
      if (static_cast<long double>(down.e[at]) < least) return "a bound is too small";
      if (static_cast<long double>(down.e[at]) > at_most * 1.01L + floor) return "a bound is far too large";
    }
  return "";
}

Sizes sizes() {
  const auto within = [](int low, int high) {
    return static_cast<std::size_t>(*rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high)));
  };
  const bool many = within(0, 10) == 0;  // several blocks
  return {within(1, 9), many ? within(500, 1600) : within(1, 40), within(1, 30)};
}

std::uint64_t seed() { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30)); }

// Protects: bounds that are summed in float are upper bounds, in range and out of it, and lose less than a hundredth;
// values are those of the product, for every block.
TEST(CompanionDense, ProductsAreBounded) {
  EXPECT_TRUE(holds(300, [] { return logits_are_bounded<DType::float32>(sizes(), seed()); }));
  EXPECT_TRUE(holds(100, [] { return logits_are_bounded<DType::float64>(sizes(), seed()); }));
  EXPECT_TRUE(holds(300, [] { return products_are_bounded<DType::float32>(sizes(), seed()); }));
  EXPECT_TRUE(holds(100, [] { return products_are_bounded<DType::float64>(sizes(), seed()); }));
}

// Protects: the same for activations that carry errors of their own, on one side and on both.
TEST(CompanionDense, ProductsOfActivationsAreBounded) {
  EXPECT_TRUE(holds(300, [] { return open_products_are_bounded<DType::float32>(sizes(), seed()); }));
  EXPECT_TRUE(holds(100, [] { return open_products_are_bounded<DType::float64>(sizes(), seed()); }));
  EXPECT_TRUE(holds(300, [] { return gradients_of_matrices_are_bounded<DType::float32>(sizes(), seed()); }));
  EXPECT_TRUE(holds(100, [] { return gradients_of_matrices_are_bounded<DType::float64>(sizes(), seed()); }));
}

// Protects: logits are taken as exact where no order rounds, and nowhere else: 2^24 units and 2^24 + 1.
TEST(CompanionDense, KnowsExactSums) {
  const auto error_of = [](std::vector<double> a, std::vector<double> b) {
    return times_transposed(Leaves<DType::float32>{a.data(), 1, a.size()},
                            Leaves<DType::float32>{b.data(), 1, b.size()}, 1)
        .e[0];
  };
  EXPECT_EQ(error_of({3, -1, 0}, {0.5, 0.25, 7}), 0);
  EXPECT_EQ(error_of({0, 0}, {0.1, 1e30}), 0);
  EXPECT_EQ(error_of({1, -1}, {0x1p22 + 1, 0x1p22 - 1}), 0);
  EXPECT_GT(error_of({1, -1}, {0x1p23 + 1, 0x1p23 + 1}), 0) << "2^24 + 2 units of 1";
  EXPECT_GT(error_of({rounded(0.1, DType::float32)}, {rounded(0.1, DType::float32)}), 0);
  EXPECT_GT(error_of({0x1p-80}, {0x1p-80}), 0) << "below the smallest subnormal";
  EXPECT_EQ(error_of({0x1p-70}, {0x1p-70}), 0);
}

using R = Companion<DType::float32>;

R exponent(double y, double e) { return {y, std::fabs(y), 0, e, std::fabs(y)}; }

// Protects: exp of an exponent that is off by e covers exp of everything that it may be, and no error of a masked
// logit, however large, is one of exp.
TEST(CompanionSoftmax, ExpCoversItsInterval) {
  for (double y : {0.0, -1.0, -20.0, -80.0, -150.0})
    for (double e : {0.0, 1e-7, 1e-3, 0.3, 0.499, 0.5, 2.0, 30.0}) {
      const R x = exp(exponent(y, e));
      EXPECT_GE(error(x), std::exp(y + e) - std::exp(y)) << y << " " << e;
      EXPECT_GE(error(x), std::exp(y) - std::exp(y - e)) << y << " " << e;
      EXPECT_LE(error(x), (std::expm1(e) * 1.2 + 1e-6) * std::exp(y) + 2 * smallest_normal<DType::float32>)
          << y << " " << e;
    }
  const R masked = exp(exponent(-1e30, 1e25));
  EXPECT_EQ(static_cast<double>(masked.v), 0);
  EXPECT_EQ(error(masked), 0);
  EXPECT_GE(error(exp(exponent(-1e3, 1e6))), unbounded);
  EXPECT_GE(error(exp(exponent(0, std::numeric_limits<double>::infinity()))), unbounded);
}

// Protects: log of a sum that is off covers log of everything that it may be; none where it may be 0.
TEST(CompanionSoftmax, LogCoversItsInterval) {
  for (double s : {1.0, 1.5, 50000.0})
    for (double e : {0.0, 1e-6, 0.3, 0.9}) {
      const R l = log(R(s, s, 0, e, s));
      EXPECT_GE(error(l), std::log(s) - std::log(s - e));
      EXPECT_GE(error(l), std::log(s + e) - std::log(s));
      EXPECT_LE(error(l), e / (s - e) * 1.02 + 5e-7 * std::log(s));
    }
  EXPECT_GE(error(log(R(1.0, 1.0, 0, 1.0, 1.0))), unbounded);
}

}  // namespace
}  // namespace fractus::oracle
