// Calls of cross entropy for the oracle's tests: a Draw is what RapidCheck draws and shrinks, `made` its tensors.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>

#include "oracle/cross_entropy_expected.h"

namespace fractus::oracle::cross_entropy {

enum class Fill { ordinary, shifted, peaked, masked, equal, exact, two_level, wide, cancelling, tiny, rows_repeated };
inline constexpr int fill_count = 11;

struct Draw {
  int N = 1, d = 1, V = 1;
  Fill fill = Fill::ordinary;
  std::uint64_t seed = 0;
  bool cotangent = true;
};

inline std::ostream& operator<<(std::ostream& os, const Draw& d) {
  static constexpr const char* names[] = {"ordinary",  "shifted", "peaked",     "masked", "equal",        "exact",
                                          "two_level", "wide",    "cancelling", "tiny",   "rows_repeated"};
  return os << "N " << d.N << " d " << d.d << " V " << d.V << " fill " << names[static_cast<int>(d.fill)] << " seed "
            << d.seed << " cotangent " << d.cotangent;
}

inline rc::Gen<Draw> draws(int most_N = 6, int most_d = 9, int most_V = 60) {
  using rc::gen::inRange;
  const auto numbers = rc::gen::tuple(inRange(1, most_N + 1), inRange(1, most_d + 1), inRange(1, most_V + 1),
                                      inRange(0, fill_count), inRange<std::uint64_t>(0, 1 << 30), inRange(0, 8));
  // RapidCheck narrows ranges at small sizes; these are drawn at the full one always.
  return rc::gen::resize(rc::kNominalSize, rc::gen::map(numbers, [](const auto& drawn) {
                           const auto& [N, d, V, fill, seed, cotangent] = drawn;
                           return Draw{N, d, V, static_cast<Fill>(fill), seed, cotangent != 0};
                         }));
}

class Values {
 public:
  explicit Values(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  double normal() { return std::normal_distribution<double>()(engine_); }
  bool chance(double probability) { return uniform(0, 1) < probability; }
  double sign() { return chance(0.5) ? 1 : -1; }
  std::size_t index(std::size_t size) { return std::uniform_int_distribution<std::size_t>(0, size - 1)(engine_); }

 private:
  std::mt19937_64 engine_;
};

template <class Next>
void fill_with(Array& array, Next next) {
  for (double& x : array.values) x = next();
}

// h's first coordinate is 1, so that W's is added to every row's logit of a token.
inline void set_first(Array& h, double value) {
  for (std::size_t n = 0; n < static_cast<std::size_t>(h.shape[0]); ++n)
    h.values[n * static_cast<std::size_t>(h.shape[1])] = value;
}

inline void fill_call(const Draw& draw, Array& h, Array& W, Values& values) {
  const auto d = static_cast<std::size_t>(draw.d), V = static_cast<std::size_t>(draw.V);
  const double scale = std::exp2(values.uniform(-4, 2)) / std::sqrt(static_cast<double>(d));
  fill_with(h, [&] { return values.normal(); });
  fill_with(W, [&] { return values.normal() * scale; });
  const auto add_to_tokens = [&](auto addend) {
    set_first(h, 1);
    for (std::size_t i = 0; i < V; ++i) W.values[i * d] += addend(i);
  };
  switch (draw.fill) {
    case Fill::ordinary: break;
    case Fill::shifted: {
      const double offset = values.sign() * 3000;
      add_to_tokens([&](std::size_t) { return offset; });
      break;
    }
    case Fill::peaked: {
      const std::size_t at = values.index(V);
      const double height = values.uniform(20, 120);
      add_to_tokens([&](std::size_t i) { return i == at ? height : 0; });
      break;
    }
    case Fill::masked: add_to_tokens([&](std::size_t i) { return i > 0 && values.chance(0.4) ? -1e30 : 0; }); break;
    case Fill::equal:
      fill_with(W, [&] { return 0; });
      add_to_tokens([&](std::size_t) { return 0.7; });
      break;
    case Fill::exact: {
      const double offset = std::trunc(values.uniform(-3000, 3000));
      fill_with(h, [&] { return std::trunc(values.uniform(-4, 5)); });
      fill_with(W, [&] { return std::trunc(values.uniform(-4, 5)) / 8; });
      add_to_tokens([&](std::size_t) { return offset; });
      break;
    }
    case Fill::two_level: {
      fill_with(W, [&] { return 0; });
      const double share = values.uniform(0, 1), level = std::trunc(values.uniform(-50, 50));
      add_to_tokens([&](std::size_t i) { return level - (i > 0 && values.chance(share) ? 200 : 0); });
      break;
    }
    case Fill::wide: {
      const double wide = std::exp2(values.uniform(2, 8));
      fill_with(W, [&] { return values.normal() * wide; });
      break;
    }
    case Fill::cancelling:  // pairs of coordinates of which the second takes the first back
      for (std::size_t k = 0; k + 1 < d; k += 2) {
        for (std::size_t n = 0; n < static_cast<std::size_t>(draw.N); ++n)
          h.values[n * d + k + 1] = -h.values[n * d + k];
        for (std::size_t i = 0; i < V; ++i) {
          W.values[i * d + k] = 300 * values.normal();
          W.values[i * d + k + 1] = W.values[i * d + k] + values.normal() * scale;
        }
      }
      break;
    case Fill::tiny:
      for (double& x : h.values) x *= 0x1p-60;
      for (double& x : W.values) x *= 0x1p-75;
      break;
    case Fill::rows_repeated:
      for (std::size_t j = d; j < h.values.size(); ++j) h.values[j] = h.values[j - d];
      for (std::size_t j = d; j < W.values.size(); ++j)
        if (values.chance(0.1)) W.values[j] = W.values[j - d];
      break;
  }
}

inline Question made(const Draw& draw, DType dtype) {
  Values values(draw.seed);
  Array h = zeros("h", dtype, {draw.N, draw.d}), W = zeros("W", dtype, {draw.V, draw.d}),
        targets = zeros("targets", DType::int64, {draw.N});
  fill_call(draw, h, W, values);
  const int kind = static_cast<int>(values.uniform(0, 4));
  fill_with(targets, [&] {
    const auto last = static_cast<std::size_t>(draw.V) - 1;
    return static_cast<double>(kind == 0 ? 0 : kind == 1 ? last : values.index(last + 1));
  });
  for (Array* array : {&h, &W})
    for (double& x : array->values) x = rounded(x, dtype);
  Question question{.dtype = dtype, .inputs = {h, W, targets}};
  if (draw.cotangent) {
    const double g = values.chance(0.3) ? 1 : values.normal() * std::exp2(values.uniform(-10, 10));
    question.cotangent = Array{"loss", dtype, {}, {rounded(g, dtype)}};
  }
  return question;
}

}  // namespace fractus::oracle::cross_entropy

namespace rc {
template <>
struct Arbitrary<fractus::oracle::cross_entropy::Draw> {
  static Gen<fractus::oracle::cross_entropy::Draw> arbitrary() { return fractus::oracle::cross_entropy::draws(); }
};
}  // namespace rc
