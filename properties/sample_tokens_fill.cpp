#include "properties/sample_tokens_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "contracts/sample_tokens.h"
#include "properties/random.h"

namespace fractus::sample_tokens {
namespace {

struct Draft {
  std::int64_t N, d, V;
  DType dtype;
  Array h, W;
  double temperature = production_temperature;

  double& row(std::int64_t n, std::int64_t k) { return h.values[static_cast<std::size_t>(n * d + k)]; }
  double& token(std::int64_t i, std::int64_t k) { return W.values[static_cast<std::size_t>(i * d + k)]; }
};

// Logits of about the given standard deviation.
void logits(Draft& x, Random& random, double deviation) {
  for (double& value : x.h.values) value = random.normal();
  const double scale = deviation / std::sqrt(static_cast<double>(x.d));
  for (double& value : x.W.values) value = scale * random.normal();
}

void ordinary(Draft& x, Random& random) { logits(x, random, random.uniform(1, 2.5)); }

// All rows are draws of the same law: thousands of them a call.
void repeat_first_row(Draft& x) {
  for (std::int64_t n = 1; n < x.N; ++n)
    for (std::int64_t k = 0; k < x.d; ++k) x.row(n, k) = x.row(0, k);
}

void one_law(Draft& x, Random& random) {
  ordinary(x, random);
  repeat_first_row(x);
}

void one_peaked(Draft& x, Random& random) {
  logits(x, random, random.uniform(3, 5));
  repeat_first_row(x);
}

void uniform(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t i = 1; i < x.V; ++i)
    for (std::int64_t k = 0; k < x.d; ++k) x.token(i, k) = x.token(0, k);
}

// Coordinate 0 is the token's own, the same for every row.
void give(Draft& x, std::int64_t i, double logit) { x.token(i, 0) = logit + (x.d == 1 ? x.token(i, 0) : 0); }

// Two thirds of the mass or more at the two ends of the vocabulary and of blocks of 64 of it.
void ends(Draft& x, Random& random) {
  logits(x, random, random.uniform(0.5, 1));
  const auto is_end = [&](std::int64_t i) { return i == 0 || i == x.V - 1 || i % 64 == 0 || i % 64 == 63; };
  double at_ends = 0;
  for (std::int64_t i = 0; i < x.V; ++i) at_ends += is_end(i) ? 1 : 0;
  const double boost = x.temperature * std::log(2 * static_cast<double>(x.V) / at_ends);
  // Half of that lies on the very first and the very last.
  const double outermost = boost + x.temperature * std::log(at_ends / 2 + 1);
  for (std::int64_t i = 0; i < x.V; ++i) give(x, i, i == 0 || i == x.V - 1 ? outermost : is_end(i) ? boost : 0);
  for (std::int64_t n = 0; n < x.N; ++n) x.row(n, 0) = 1;
}

// One law whose first and last token are drawn once or twice in two thousand: where uniform numbers end.
void rare_ends(Draft& x, Random& random) {
  one_law(x, random);
  for (std::int64_t i = 0; i < x.V; ++i) give(x, i, 0);
  for (std::int64_t n = 0; n < x.N; ++n) x.row(n, 0) = 1;
  const auto logit = [&](std::int64_t i) {
    double sum = 0;
    for (std::int64_t k = 0; k < x.d; ++k) sum += x.row(0, k) * x.token(i, k);
    return sum;
  };
  if (x.N == 0 || x.V < 3) return;
  double others = 0;
  for (std::int64_t i = 1; i + 1 < x.V; ++i) others += std::exp(logit(i) / x.temperature);
  for (const std::int64_t i : {std::int64_t{0}, x.V - 1})
    x.token(i, 0) += x.temperature * std::log(7e-4 * others) - logit(i);
}

// One law, and an offset that all logits share: its size must cost nothing beyond the accuracy of the logits
// themselves.
void shifted(Draft& x, Random& random) {
  one_law(x, random);
  const double offset = random.sign() * random.uniform(150, 250);
  for (std::int64_t i = 0; i < x.V; ++i) give(x, i, offset);
  for (std::int64_t n = 0; n < x.N; ++n) x.row(n, 0) = 1;
}

// Tokens that nobody may choose, as a mask of -1e30 makes them.
void masked(Draft& x, Random& random) {
  ordinary(x, random);
  const double share = random.chance(0.3) ? 0.97 : 0.3;
  bool any_open = false;
  for (std::int64_t i = 0; i < x.V; ++i) {
    const bool closed = random.chance(share) && !(i == x.V - 1 && !any_open);
    if (closed)
      x.token(i, 0) = -1e30;
    else
      give(x, i, 0);
    any_open = any_open || !closed;
  }
  for (std::int64_t n = 0; n < x.N; ++n) x.row(n, 0) = 1;
}

// Logits to match, so that the law is an ordinary one.
void at_temperature(Draft& x, Random& random, double low, double high) {
  x.temperature = std::exp(random.uniform(std::log(low), std::log(high)));
  logits(x, random, x.temperature * random.uniform(1, 2.5));
}

void temperatures(Draft& x, Random& random) {
  ordinary(x, random);
  x.temperature = std::exp(random.uniform(std::log(0.3), std::log(3.0)));
}

using Filler = void (*)(Draft&, Random&);
const std::vector<std::pair<std::string, Filler>>& fillers() {
  static const std::vector<std::pair<std::string, Filler>> all{
      {"ordinary", ordinary},
      {"one_law", one_law},
      {"temperatures", temperatures},
      {"cold", [](Draft& x, Random& random) { at_temperature(x, random, 0.05, 0.19); }},
      {"hot", [](Draft& x, Random& random) { at_temperature(x, random, 2.1, 5); }},
      {"one_peaked", one_peaked},
      {"rare_ends", rare_ends},
      {"shifted", shifted},
      {"peaked", [](Draft& x, Random& random) { logits(x, random, random.uniform(4, 8)); }},
      {"uniform", uniform},
      {"ends", ends},
      {"masked", masked},
      {"spread", [](Draft& x, Random& random) { logits(x, random, random.uniform(30, 60)); }},
  };
  return all;
}

// Anywhere in the range; now and then where a seed of fewer bits, or a signed one, ends.
double any_seed(Random& random) {
  constexpr double ends_of_ranges[] = {0, 1, 0x1p16, 0x1p31 - 1, 0x1p31, seeds - 1};
  if (random.chance(0.1)) return ends_of_ranges[random.integer(0, std::size(ends_of_ranges) - 1)];
  return static_cast<double>(random.integer(0, static_cast<std::int64_t>(seeds) - 1));
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols) {
    const std::int64_t least = symbol == "ce_chunk" || symbol == "N" ? 0 : 1;
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < least)
      throw std::invalid_argument(fmt::format("dims: wanted {} of {} or more, got {}", symbol, least,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  }
  const std::int64_t N = c.dims.at("N"), d = c.dims.at("d"), V = c.dims.at("V");
  return {N, d, V, c.dtype, zeros("h", c.dtype, {N, d}), zeros("W", c.dtype, {V, d})};
}

}  // namespace

std::vector<std::string> fill_names() {
  std::vector<std::string> names;
  for (const auto& [name, filler] : fillers()) names.push_back(name);
  return names;
}

Problem fill(const Case& c) {
  Draft x = blank(c);
  Random random(c.seed);
  const auto& all = fillers();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == c.fill; });
  if (found == all.end())
    throw std::invalid_argument(
        fmt::format("fill: '{}' is unknown; wanted one of {}", c.fill, fmt::join(fill_names(), ", ")));
  found->second(x, random);
  for (Array* array : {&x.h, &x.W})
    for (double& value : array->values) value = rounded(value, x.dtype);
  Problem problem;
  problem.inputs = {std::move(x.h), std::move(x.W)};
  problem.scalars = {{"ce_chunk", static_cast<double>(c.dims.at("ce_chunk"))},
                     {"temperature", x.temperature},
                     {"seed", any_seed(random)}};
  problem.cotangents.emplace_back();
  return problem;
}

}  // namespace fractus::sample_tokens
