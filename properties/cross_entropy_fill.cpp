#include "properties/cross_entropy_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "contracts/cross_entropy.h"
#include "properties/random.h"

namespace fractus::cross_entropy {
namespace {

struct Draft {
  std::int64_t N, d, V;
  DType dtype;
  Array h, W, targets;
  double g = 1;  // the cotangent of the loss

  double& row(std::int64_t n, std::int64_t k) { return h.values[static_cast<std::size_t>(n * d + k)]; }
  double& token(std::int64_t i, std::int64_t k) { return W.values[static_cast<std::size_t>(i * d + k)]; }
  double& target(std::int64_t n) { return targets.values[static_cast<std::size_t>(n)]; }
};

// Logits of about the given standard deviation, any targets, a cotangent that is not 1.
void logits(Draft& x, Random& random, double deviation) {
  for (double& value : x.h.values) value = random.normal();
  const double scale = deviation / std::sqrt(static_cast<double>(x.d));
  for (double& value : x.W.values) value = scale * random.normal();
  for (double& target : x.targets.values) target = static_cast<double>(random.integer(0, x.V - 1));
  x.g = random.sign() * std::exp2(random.uniform(-3, 3));
}

void ordinary(Draft& x, Random& random) { logits(x, random, random.uniform(0.5, 3)); }

// An offset that all logits of a row share, which must cost nothing beyond the accuracy of x itself.
void shifted(Draft& x, Random& random) {
  ordinary(x, random);
  const double offset = random.sign() * 3000;
  for (std::int64_t n = 0; n < x.N; ++n) x.row(n, 0) = 1;
  for (std::int64_t i = 0; i < x.V; ++i) x.token(i, 0) = offset + (x.d == 1 ? x.token(i, 0) : 0);
}

// One logit 80 above the rest, at the target or beside it.
void dominant(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t n = 0; n < x.N; ++n) {
    double square = 0;
    for (std::int64_t k = 0; k < x.d; ++k) square += x.row(n, k) * x.row(n, k);
    if (square < 0.1) continue;
    const std::int64_t i = random.integer(0, x.V - 1);
    for (std::int64_t k = 0; k < x.d; ++k) x.token(i, k) = 80 * x.row(n, k) / square;
    if (random.chance(0.5)) x.target(n) = static_cast<double>(i);
  }
}

void equal(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t i = 1; i < x.V; ++i)
    for (std::int64_t k = 0; k < x.d; ++k) x.token(i, k) = x.token(0, k);
}

void same_target(Draft& x, Random& random) {
  ordinary(x, random);
  std::fill(x.targets.values.begin(), x.targets.values.end(), static_cast<double>(random.integer(0, x.V - 1)));
}

void end_targets(Draft& x, Random& random) {
  ordinary(x, random);
  for (double& target : x.targets.values) target = random.chance(0.5) ? 0 : static_cast<double>(x.V - 1);
}

// Rows and targets that are there several times, so that gradients of one token come from several rows.
void duplicated(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t n = 1; n < x.N; ++n) {
    if (random.chance(0.4)) continue;
    const std::int64_t of = random.integer(0, n - 1);
    for (std::int64_t k = 0; k < x.d; ++k) x.row(n, k) = x.row(of, k);
    if (random.chance(0.7)) x.target(n) = x.target(of);
  }
}

// Tokens that nobody may choose, as a mask of -1e30 makes them: here and there, all up to some token or all behind it,
// all but a few. Targets are others where there are any; now and then one is not.
void masked(Draft& x, Random& random) {
  ordinary(x, random);
  const std::int64_t border = random.integer(0, x.V - 1);
  const double share = random.chance(0.3) ? 0.97 : 0.3;
  const std::int64_t kind = random.integer(0, 2);
  std::vector<std::int64_t> open;
  for (std::int64_t i = 0; i < x.V; ++i) {
    bool closed = kind == 0 ? random.chance(share) : kind == 1 ? i < border : i > border;
    closed = closed && !(i == x.V - 1 && open.empty());
    x.token(i, 0) = closed ? -1e30 : (x.d == 1 ? x.token(i, 0) : 0);
    if (!closed) open.push_back(i);
  }
  for (std::int64_t n = 0; n < x.N; ++n) {
    x.row(n, 0) = 1;
    x.target(n) = static_cast<double>(
        open[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(open.size()) - 1))]);
  }
  if (random.chance(0.3)) x.target(random.integer(0, x.N - 1)) = static_cast<double>(random.integer(0, x.V - 1));
}

// All tokens masked but the last few, so that whole blocks of a vocabulary hold nothing else.
void last_few_open(Draft& x, Random& random) {
  ordinary(x, random);
  const std::int64_t open = x.V - 1 - random.integer(0, std::min<std::int64_t>(2, x.V - 1));
  for (std::int64_t i = 0; i < x.V; ++i) x.token(i, 0) = i < open ? -1e30 : (x.d == 1 ? x.token(i, 0) : 0);
  for (std::int64_t n = 0; n < x.N; ++n) {
    x.row(n, 0) = 1;
    x.target(n) = static_cast<double>(random.integer(open, x.V - 1));
  }
}

// Logits that rise along the vocabulary, so that a running maximum rises in every block, by a little or by a lot.
void ascending(Draft& x, Random& random) {
  const double span = std::exp2(random.uniform(-10, 5));
  logits(x, random, span / 8);
  for (std::int64_t n = 0; n < x.N; ++n) x.row(n, 0) = 1;
  for (std::int64_t i = 0; i < x.V; ++i) x.token(i, 0) = span * static_cast<double>(i) / static_cast<double>(x.V);
}

// A row looks at one coordinate, and W lies on a grid about an offset: the logits are exact in every order, and what is
// left of the tolerance is that of the softmax alone.
void on_grid(Draft& x, Random& random, double offset, double grid, double deviation) {
  ordinary(x, random);
  for (double& value : x.W.values) value = offset + std::round(deviation * random.normal() / grid) * grid;
  for (std::int64_t n = 0; n < x.N; ++n) {
    const std::int64_t looks_at = random.integer(0, x.d - 1);
    for (std::int64_t k = 0; k < x.d; ++k) x.row(n, k) = k == looks_at ? 1 : 0;
  }
}

double fine_grid(const Draft& x) { return x.dtype == DType::float32 ? 0x1p-8 : 0x1p-30; }

void exact_logits(Draft& x, Random& random) { on_grid(x, random, 0, fine_grid(x), random.uniform(0.5, 4)); }

void exact_shifted(Draft& x, Random& random) {
  const double offset = random.sign() * static_cast<double>(random.integer(1000, 3000));
  on_grid(x, random, offset, fine_grid(x), random.uniform(0.5, 4));
}

// So large that a square overflows, and so far apart that each row has one token.
void huge_logits(Draft& x, Random& random) { on_grid(x, random, random.sign() * 0x1p66, 0x1p46, 0x1p48); }

void zero_cotangent(Draft& x, Random& random) {
  ordinary(x, random);
  x.g = random.chance(0.5) ? 0.0 : -0.0;
}

void zero_tensors(Draft& x, Random& random) {
  ordinary(x, random);
  const auto clear = [](Array& array) { std::fill(array.values.begin(), array.values.end(), 0.0); };
  const std::int64_t which = random.integer(0, 2);
  if (which == 0) clear(x.h);
  if (which == 1) clear(x.W);
  if (which == 2)
    for (std::int64_t n = 0; n < x.N; ++n)
      for (std::int64_t k = 0; k < x.d; ++k)
        if (n % 2 == 0) x.row(n, k) = random.chance(0.5) ? 0.0 : -0.0;
}

void sparse(Draft& x, Random& random) {
  ordinary(x, random);
  for (Array* array : {&x.h, &x.W})
    for (double& value : array->values)
      if (random.chance(0.8)) value = random.chance(0.5) ? 0.0 : -0.0;
}

// h, W and the cotangent far from 1, logits ordinary all the same.
void magnitudes(Draft& x, Random& random) {
  ordinary(x, random);
  const double scale = std::exp2(static_cast<double>(random.integer(-20, 20)));
  for (double& value : x.h.values) value *= scale;
  for (double& value : x.W.values) value /= scale;
  x.g *= std::exp2(static_cast<double>(random.integer(-20, 20)));
}

// All targets different, as far as there are tokens for that.
void distinct_targets(Draft& x, Random& random) {
  ordinary(x, random);
  const std::int64_t first = random.integer(0, x.V - 1);
  for (std::int64_t n = 0; n < x.N; ++n) x.target(n) = static_cast<double>((first + n) % x.V);
}

// Among ordinary numbers some that are next to nothing, of either tensor.
void tiny_entries(Draft& x, Random& random) {
  ordinary(x, random);
  for (Array* array : {&x.h, &x.W})
    for (double& value : array->values)
      if (random.chance(0.1)) value *= std::exp2(-static_cast<double>(random.integer(30, 100)));
}

using Filler = void (*)(Draft&, Random&);
const std::vector<std::pair<std::string, Filler>>& fillers() {
  static const std::vector<std::pair<std::string, Filler>> all{
      {"ordinary", ordinary},
      {"peaked", [](Draft& x, Random& random) { logits(x, random, random.uniform(6, 12)); }},
      {"shifted", shifted},
      {"exact_logits", exact_logits},
      {"exact_shifted", exact_shifted},
      {"ascending", ascending},
      {"dominant", dominant},
      {"equal", equal},
      {"same_target", same_target},
      {"end_targets", end_targets},
      {"duplicated", duplicated},
      {"masked", masked},
      {"last_few_open", last_few_open},
      {"spread", [](Draft& x, Random& random) { logits(x, random, random.uniform(30, 60)); }},
      {"small", [](Draft& x, Random& random) { logits(x, random, 1e-4); }},
      {"huge_logits", huge_logits},
      {"zero_tensors", zero_tensors},
      {"zero_cotangent", zero_cotangent},
      {"sparse", sparse},
      {"magnitudes", magnitudes},
      {"distinct_targets", distinct_targets},
      {"tiny_entries", tiny_entries},
  };
  return all;
}

// How far below the others a logit has to lie so that its exponential is exactly 0 with every library; a power of two.
double gap(DType dtype) { return dtype == DType::float32 ? 256 : 1024; }

// 2^j tokens whose logit is level, spread over the vocabulary in equal strata, so that each block and the tail hold
// some; often the very last and the very first are among them.
std::vector<std::int64_t> on_set(Random& random, std::int64_t V, std::int64_t j) {
  const std::int64_t strata = std::int64_t{1} << j;
  std::vector<std::int64_t> on;
  for (std::int64_t s = 0; s < strata; ++s) on.push_back(random.integer(V * s / strata, V * (s + 1) / strata - 1));
  if (random.chance(0.5)) on.back() = V - 1 - random.integer(0, std::min<std::int64_t>(2, (V - 1) / strata));
  if (strata > 1 && random.chance(0.3)) on.front() = 0;
  return on;
}

// Logits of two levels, `gap` apart: softmax is 2^-j at 2^j tokens and exactly 0 elsewhere, and with N a power of two
// every gradient is dyadic (METHODS.md, section 1). Rows share patterns, one coordinate of h and W each; what is left
// of the width holds pairs that cancel in the logits and fill the gradients. `widest`: the largest j.
void two_level(Draft& x, Random& random, std::int64_t widest) {
  const std::int64_t patterns = std::min<std::int64_t>({x.d, x.N, 6});
  const double low = -gap(x.dtype);
  const auto largest = static_cast<std::int64_t>(std::log2(static_cast<double>(x.V)));
  std::vector<std::vector<std::int64_t>> on;
  for (std::int64_t p = 0; p < patterns; ++p) {
    const double unit = std::exp2(static_cast<double>(random.integer(-6, 6)));
    on.push_back(on_set(random, x.V, random.integer(0, std::min(widest, largest))));
    for (std::int64_t i = 0; i < x.V; ++i) x.token(i, p) = low / unit;
    for (std::int64_t i : on.back()) x.token(i, p) = 0;
    for (std::int64_t n = p; n < x.N; n += patterns) x.row(n, p) = unit;
  }
  for (std::int64_t n = 0; n < x.N; ++n) {
    const auto& its = on[static_cast<std::size_t>(n % patterns)];
    const bool at_on = random.chance(0.6);
    x.target(n) = static_cast<double>(
        at_on ? its[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(its.size()) - 1))]
              : random.integer(0, x.V - 1));
  }
  for (std::int64_t k = patterns; k + 1 < x.d; k += 2) {
    for (std::int64_t n = 0; n < x.N; ++n)
      x.row(n, k + 1) = -(x.row(n, k) = static_cast<double>(random.integer(-4, 4)));
    for (std::int64_t i = 0; i < x.V; ++i)
      x.token(i, k) = x.token(i, k + 1) = static_cast<double>(random.integer(-4, 4));
  }
  x.g = random.sign() * static_cast<double>(2 * random.integer(0, 3) + 1) *
        std::exp2(static_cast<double>(random.integer(-8, 8)));
}

// One token on in each row, and one tensor that fills the significand: W or h in a pair of coordinates that cancels in
// the logits and not in the gradients, or the cotangent. A gradient kept a bit short is off by that bit.
void wide(Draft& x, Random& random, const std::string& which) {
  const int bits = significand_bits(x.dtype), last = bits - 12;
  // Odd and of bits - 1 bits: twice it, and the gap beside it, fit the significand on its grid of 2^-last.
  const auto odd = [&] {
    const auto half = static_cast<std::int64_t>(std::exp2(last + 9));  // 1024/2 in units of the grid
    return random.sign() * std::ldexp(static_cast<double>(2 * random.integer(half, half + half / 3) + 1), -last);
  };
  const bool pair = x.d >= 3 && which != "wide_g";
  const std::int64_t level = pair ? 2 : 0;
  const std::int64_t apart = std::max<std::int64_t>(1, x.V / 2);  // rows with two tokens of their own
  for (std::int64_t i = 0; i < x.V; ++i) {
    if (which == "wide_W" && pair) x.token(i, 0) = x.token(i, 1) = odd();
    if (which == "wide_h" && pair) x.token(i, 1) = -(x.token(i, 0) = 1);
  }
  // One coordinate decides, and all rows look at it: the same token is on in each.
  const std::int64_t on = random.integer(0, x.V - 1);
  for (std::int64_t i = 0; i < x.V; ++i) x.token(i, level) = i == on ? 0 : -gap(x.dtype);
  const bool first_alone = which == "wide_h";
  for (std::int64_t n = 0; n < x.N; ++n) {
    x.row(n, level) = 1;
    const bool fills = n % apart == n && !(first_alone && n > 0);
    if (which == "wide_W" && pair) x.row(n, 1) = -(x.row(n, 0) = 1);
    if (which == "wide_h" && pair && fills) x.row(n, 0) = x.row(n, 1) = odd();
    // A row whose target is on has no gradient; the others pull at one token each.
    const bool pulls = x.V > 1 && (which == "wide_W" || n == 0);
    x.target(n) = static_cast<double>(pulls ? (on + 1 + random.integer(0, x.V - 2)) % x.V : on);
  }
  if (which != "wide_g") {
    x.g = random.sign() * std::exp2(static_cast<double>(random.integer(-8, 8)));
    return;
  }
  // All rows pull at one token, p g and the one-hot's g in any order: 2 N of them have to fit.
  const auto room = static_cast<int>(std::ceil(std::log2(static_cast<double>(2 * x.N))));
  x.g = std::ldexp(std::floor(std::ldexp(std::fabs(odd()), last - room)) * 2 + 1, -last - 1 + room) * random.sign();
}

Problem finished(Draft& x, const Case& c) {
  for (Array* array : {&x.h, &x.W})
    for (double& value : array->values) value = rounded(value, x.dtype);
  Problem problem;
  problem.inputs = {std::move(x.h), std::move(x.W), std::move(x.targets)};
  problem.scalars["ce_chunk"] = static_cast<double>(c.dims.at("ce_chunk"));
  problem.cotangents.emplace_back();
  if (contains(c.cotangents, "loss")) problem.cotangents.back() = Array{"loss", x.dtype, {}, {rounded(x.g, x.dtype)}};
  return problem;
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols) {
    const std::int64_t least = symbol == "ce_chunk" ? 0 : 1;
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < least)
      throw std::invalid_argument(fmt::format("dims: wanted {} of {} or more, got {}", symbol, least,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  }
  const std::int64_t N = c.dims.at("N"), d = c.dims.at("d"), V = c.dims.at("V");
  return {
      N, d, V, c.dtype, zeros("h", c.dtype, {N, d}), zeros("W", c.dtype, {V, d}), zeros("targets", DType::int64, {N})};
}

}  // namespace

const std::vector<std::string>& smooth_fill_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, filler] : fillers()) list.push_back(name);
    return list;
  }();
  return names;
}

const std::vector<std::string>& wide_fill_names() {
  static const std::vector<std::string> names{"wide_W", "wide_h", "wide_g"};
  return names;
}

std::vector<std::string> fill_names() {
  std::vector<std::string> names = smooth_fill_names();
  names.insert(names.end(), {"one_level", "two_level"});
  names.insert(names.end(), wide_fill_names().begin(), wide_fill_names().end());
  return names;
}

Problem fill(const Case& c) {
  Draft x = blank(c);
  Random random(c.seed);
  if (c.fill == "one_level" || c.fill == "two_level") {
    two_level(x, random, c.fill == "one_level" ? 0 : 6);
    return finished(x, c);
  }
  if (contains(wide_fill_names(), c.fill)) {
    wide(x, random, c.fill);
    return finished(x, c);
  }
  for (const auto& [name, filler] : fillers())
    if (name == c.fill) {
      filler(x, random);
      return finished(x, c);
    }
  throw std::invalid_argument(
      fmt::format("fill: '{}' is unknown; wanted one of {}", c.fill, fmt::join(fill_names(), ", ")));
}

}  // namespace fractus::cross_entropy
