// Calls of linear attention for the oracle's tests: a Draw is what RapidCheck draws and shrinks, `made` its tensors.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>

#include "oracle/linear_attention_expected.h"

namespace fractus::oracle::linear_attention {

enum class Fill { features, mixed_signs, magnitudes, wild, cancelling, zeros, subnormal, near_cut };
inline constexpr int fill_count = 8;

struct Draw {
  int T = 1, D = 1;
  Fill fill = Fill::features;
  std::uint64_t seed = 0;
  bool S0 = true, z0 = true;
  int cotangents = 7;  // bit j: the cotangent of output j is given
};

inline std::ostream& operator<<(std::ostream& os, const Draw& d) {
  static constexpr const char* names[] = {"features",   "mixed_signs", "magnitudes", "wild",
                                          "cancelling", "zeros",       "subnormal",  "near_cut"};
  return os << "T " << d.T << " D " << d.D << " fill " << names[static_cast<int>(d.fill)] << " seed " << d.seed
            << " S0 " << d.S0 << " z0 " << d.z0 << " cotangents " << d.cotangents;
}

inline rc::Gen<Draw> draws(int most_T = 12, int most_D = 6) {
  using rc::gen::inRange;
  const auto numbers = rc::gen::tuple(inRange(1, most_T + 1), inRange(1, most_D + 1), inRange(0, fill_count),
                                      inRange<std::uint64_t>(0, 1 << 30), inRange(0, 6), inRange(0, 8));
  // RapidCheck narrows ranges at small sizes; these are drawn at the full one always.
  return rc::gen::resize(rc::kNominalSize, rc::gen::map(numbers, [](const auto& drawn) {
                           const auto& [T, D, fill, seed, absent, cotangents] = drawn;
                           const bool S0 = absent != 1 && absent != 3, z0 = absent != 2 && absent != 3;
                           return Draw{T, D, static_cast<Fill>(fill), seed, S0, z0, cotangents};
                         }));
}

// Values of one seed. Portable transforms are of no matter here: a draw has to repeat on this machine only.
class Values {
 public:
  explicit Values(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  double normal() { return std::normal_distribution<double>()(engine_); }
  bool chance(double probability) { return uniform(0, 1) < probability; }
  double sign() { return chance(0.5) ? 1 : -1; }
  double magnitude(double low, double high) { return std::exp2(uniform(low, high)); }

 private:
  std::mt19937_64 engine_;
};

struct Tensors {
  Array q, k, v, S0, z0, gy, gS, gz;
};

template <class Next>
void fill_with(Array& array, Next next) {
  for (double& x : array.values) x = next();
}

inline void ordinary(Tensors& x, Values& values, bool positive) {
  for (Array* array : {&x.q, &x.k, &x.z0})
    fill_with(*array, [&] { return positive ? values.uniform(0.1, 2) : values.normal(); });
  for (Array* array : {&x.v, &x.S0, &x.gy, &x.gS, &x.gz}) fill_with(*array, [&] { return values.normal(); });
}

// Every entry within `spread` binades of its tensor's centre, and that within 2^+-28.
inline void magnitudes(Tensors& x, Values& values, double reach, double spread) {
  const bool positive = values.chance(0.7);
  for (Array* array : {&x.q, &x.k, &x.v, &x.S0, &x.z0, &x.gy, &x.gS, &x.gz}) {
    const bool feature = array == &x.q || array == &x.k || array == &x.z0;
    const double centre = values.uniform(-reach, reach);
    fill_with(*array, [&] {
      return (feature && positive ? 1 : values.sign()) * values.magnitude(centre - spread, centre + spread);
    });
  }
}

// q's first coordinate is moved so that den becomes `target` of its row.
template <class Target>
void steer(Tensors& x, const Draw& d, DType dtype, Target target) {
  const auto D = static_cast<std::size_t>(d.D);
  std::vector<double> z(D);
  if (d.z0) z = x.z0.values;
  for (std::size_t t = 0; t < static_cast<std::size_t>(d.T); ++t) {
    double rest = 0, terms = 0;
    for (std::size_t p = 0; p < D; ++p) {
      z[p] += x.k.values[t * D + p];
      if (p > 0) rest += x.q.values[t * D + p] * z[p], terms += std::fabs(x.q.values[t * D + p] * z[p]);
    }
    if (z[0] != 0) x.q.values[t * D] = rounded((target(terms) - rest) / z[0], dtype);
  }
}

inline void near_cut(Tensors& x, Values& values, const Draw& d, DType dtype) {
  ordinary(x, values, false);
  // A single product a row half of the time, so that den is known to a few ulp; else one that cancels.
  const bool single = values.chance(0.5);
  for (double& q : x.q.values) q = single ? 0 : q * 1e-6;
  static constexpr double offsets[] = {0, 1e-7, -1e-7, 1e-6, -1e-6, 1e-3, -1e-3, 0.5, -0.5, 20};
  steer(x, d, dtype,
        [&](double) { return values.sign() * 1e-10 * (1 + offsets[static_cast<int>(values.uniform(0, 10))]); });
}

inline void zeros_in(Tensors& x, Values& values, const Draw& d) {
  ordinary(x, values, values.chance(0.5));
  const double share = values.uniform(0, 1);
  for (Array* array : {&x.q, &x.k, &x.v, &x.S0, &x.z0, &x.gy, &x.gS, &x.gz})
    for (double& value : array->values)
      if (values.chance(share)) value = 0;
  if (values.chance(0.5)) std::fill_n(x.q.values.begin(), d.D, 0.0);
  if (values.chance(0.5)) std::fill_n(x.k.values.begin(), d.D, 0.0);
}

// den is huge and all else tiny: y, dq and dk fall below float32's normal range.
inline void subnormal(Tensors& x, Values& values) {
  for (Array* array : {&x.q, &x.z0}) fill_with(*array, [&] { return values.magnitude(24, 30); });
  for (Array* array : {&x.k, &x.v, &x.S0, &x.gy, &x.gS, &x.gz})
    fill_with(*array, [&] { return values.sign() * values.magnitude(-30, -20); });
}

inline Question made(const Draw& d, DType dtype) {
  Values values(d.seed);
  const auto tokens = [&](const char* name) { return zeros(name, dtype, {1, d.T, d.D}); };
  const auto state = [&](const char* name) { return zeros(name, dtype, {1, d.D, d.D}); };
  const auto normaliser = [&](const char* name) { return zeros(name, dtype, {1, d.D}); };
  Tensors x{tokens("q"),      tokens("k"), tokens("v"), state("S0"),
            normaliser("z0"), tokens("y"), state("S"),  normaliser("z")};
  switch (d.fill) {
    case Fill::features: ordinary(x, values, true); break;
    case Fill::mixed_signs: ordinary(x, values, false); break;
    case Fill::magnitudes: magnitudes(x, values, 28, 2); break;
    case Fill::wild: magnitudes(x, values, 0, 12); break;
    case Fill::cancelling:
      ordinary(x, values, false);
      steer(x, d, dtype,
            [&](double terms) { return values.sign() * std::pow(10.0, values.uniform(-8, -1)) * (terms + 0.1); });
      break;
    case Fill::zeros: zeros_in(x, values, d); break;
    case Fill::subnormal: subnormal(x, values); break;
    case Fill::near_cut: near_cut(x, values, d, dtype); break;
  }
  for (Array* array : {&x.q, &x.k, &x.v, &x.S0, &x.z0, &x.gy, &x.gS, &x.gz})
    for (double& value : array->values) value = rounded(value, dtype);

  const auto given = [](bool present, const Array& array) { return present ? std::optional(array) : std::nullopt; };
  Question question{.dtype = dtype, .inputs = {x.q, x.k, x.v, given(d.S0, x.S0), given(d.z0, x.z0)}};
  if (d.cotangents != 0)
    question.cotangents = {given(d.cotangents & 1, x.gy), given(d.cotangents & 2, x.gS), given(d.cotangents & 4, x.gz)};
  return question;
}

}  // namespace fractus::oracle::linear_attention

namespace rc {
template <>
struct Arbitrary<fractus::oracle::linear_attention::Draw> {
  static Gen<fractus::oracle::linear_attention::Draw> arbitrary() { return fractus::oracle::linear_attention::draws(); }
};
}  // namespace rc
