#include "properties/moe_gate_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "contracts/moe_gate.h"
#include "properties/random.h"

namespace fractus::moe_gate {
namespace {

constexpr double pi = std::numbers::pi;
// The training run's gate.
constexpr double ordinary_kappa = 4;

struct Draft {
  std::int64_t tokens, P, E, top_k;
  DType dtype;
  Array phases, mu;
  double kappa = ordinary_kappa, temperature = 2.5;

  double& phase(std::int64_t t, std::int64_t p) { return phases.values[static_cast<std::size_t>(t * P + p)]; }
  double& expert(std::int64_t e) { return mu.values[static_cast<std::size_t>(e)]; }
  double steepness() const { return kappa / temperature; }
  // All of a token's oscillators, so that its theta is this number and has next to no error.
  void set(std::int64_t t, double theta) {
    for (std::int64_t p = 0; p < P; ++p) phase(t, p) = theta;
  }
};

double log_uniform(Random& random, double low, double high) {
  return std::exp(random.uniform(std::log(low), std::log(high)));
}

void set_experts(Draft& x, const std::vector<double>& phases) { x.mu.values = phases; }

// The temperatures at which kappa 4 stays in the domain, down to 0.1 and kappa / temperature 40.
void any_temperature(Draft& x, Random& random) {
  x.temperature = random.chance(0.3) ? 2.5 : random.chance(0.2) ? 0.1 : log_uniform(random, 0.1, 2.5);
}

void spread(Draft& x, Random& random) {
  set_experts(x, farey_phases(x.E));
  any_temperature(x, random);
  for (double& phase : x.phases.values) phase = random.uniform(0, 2 * pi);
}

// Oscillators that nearly agree, also across 0 and 2 pi, where the arithmetic mean of angles is far from theirs.
void together(Draft& x, Random& random) {
  spread(x, random);
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const double centre = random.chance(0.3) ? 0 : random.uniform(0, 2 * pi), width = random.uniform(0.01, 1);
    for (std::int64_t p = 0; p < x.P; ++p) {
      const double phase = std::fmod(centre + width * random.normal(), 2 * pi);
      x.phase(t, p) = phase < 0 ? phase + 2 * pi : phase;
    }
  }
}

void all_equal(Draft& x, Random& random) {
  spread(x, random);
  for (std::int64_t t = 0; t < x.tokens; ++t) x.set(t, random.uniform(0, 2 * pi));
}

// Phases that nobody wrapped, and experts anywhere, some of them on top of each other.
void any_experts(Draft& x, Random& random) {
  spread(x, random);
  for (double& phase : x.phases.values)
    phase += 2 * pi * static_cast<double>(random.integer(-3, random.chance(0.1) ? 500 : 3));
  for (std::int64_t e = 0; e < x.E; ++e)
    x.expert(e) = e > 0 && random.chance(0.2) ? x.expert(random.integer(0, e - 1)) : random.uniform(-10, 10);
  x.kappa = random.chance(0.1) ? 0 : x.temperature * log_uniform(random, 0.05, 0.99 * steepest);
}

void steep(Draft& x, Random& random) {
  together(x, random);
  x.temperature = log_uniform(random, 0.1, 2.5);
  x.kappa = x.temperature * random.uniform(0.75 * steepest, 0.999 * steepest);
}

// Experts within a tenth of a radian, and all tokens but some at the other side of the circle: the sum of g is about
// E exp(-kappa / temperature), at or below the cut.
void one_sided(Draft& x, Random& random) {
  x.temperature = log_uniform(random, 0.1, 2.5);
  const double at = random.uniform(0, 2 * pi), least = 24 + std::log(static_cast<double>(x.E));
  x.kappa = x.temperature * random.uniform(std::min(least, 38.0), 0.999 * steepest);
  for (std::int64_t e = 0; e < x.E; ++e) x.expert(e) = at + random.uniform(-0.1, 0.1);
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const double centre = at + pi + (random.chance(0.7) ? random.uniform(-0.1, 0.1) : random.uniform(-pi, pi));
    for (std::int64_t p = 0; p < x.P; ++p) x.phase(t, p) = centre + 0.05 * random.normal();
  }
}

// log sum_e exp(steepness cos(theta - mu_e))
double log_sum(Draft& x, double theta) {
  double sum = 0;
  for (std::int64_t e = 0; e < x.E; ++e) sum += std::exp(x.steepness() * std::cos(theta - x.expert(e)));
  return std::log(sum);
}

// The sum of g at the cut, and a little to either side.
void at_cut(Draft& x, Random& random) {
  one_sided(x, random);
  const double from = x.expert(0) + pi;
  x.kappa = x.temperature * 0.999 * steepest;
  static constexpr double offsets[] = {0, 1e-7, -1e-7, 1e-5, -1e-5, 1e-3, -1e-3, 0.1, -0.1};
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const double wanted = std::log(cut) + offsets[random.integer(0, 8)], side = random.sign();
    double low = 0, high = pi;  // away from the far side the sum grows
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (log_sum(x, from + side * middle) < wanted ? low : high) = middle;
    }
    x.set(t, from + side * low);
  }
}

// Every few tokens the oscillators stand opposite each other and their resultant is nothing but rounding; the other
// tokens keep their bounds.
void cancelling(Draft& x, Random& random) {
  spread(x, random);
  const std::int64_t first = random.integer(0, 7);
  for (std::int64_t t = first; t < x.tokens && x.tokens >= 8; t += 8) {
    std::int64_t p = 0;
    if (x.P % 2 == 1 && x.P >= 3) {
      const double at = random.uniform(0, 2 * pi);
      for (; p < 3; ++p) x.phase(t, p) = at + 2 * pi / 3 * static_cast<double>(p);
    }
    for (; p + 1 < x.P; p += 2) x.phase(t, p + 1) = pi + (x.phase(t, p) = random.uniform(0, pi));
  }
}

// The oscillators nearly cancel, and what is left is small and known all the same: no reason to take another angle.
void nearly_cancelling(Draft& x, Random& random) {
  spread(x, random);
  const double finest = x.dtype == DType::float32 ? 12 : 36;
  for (std::int64_t t = 0; t < x.tokens && x.P >= 2; ++t) {
    for (std::int64_t p = x.P % 2; p + 1 < x.P; p += 2)
      x.phase(t, p + 1) = pi + (x.phase(t, p) = random.uniform(0, pi));
    if (x.P % 2 == 1) {  // three cancel as pairs do
      const double at = random.uniform(0, 2 * pi);
      for (std::int64_t p = 0; p < 3; ++p) x.phase(t, p) = at + 2 * pi / 3 * static_cast<double>(p);
    }
    x.phase(t, x.P - 1) += random.sign() * std::exp2(-random.uniform(6, finest));
  }
}

// `ulps` units in the last place away.
double moved(double x, std::int64_t ulps, DType dtype) {
  x = rounded(x, dtype);
  for (; ulps != 0; ulps += ulps < 0 ? 1 : -1) {
    const double towards = ulps < 0 ? -1e9 : 1e9;
    x = dtype == DType::float32
            ? static_cast<double>(std::nextafter(static_cast<float>(x), static_cast<float>(towards)))
            : std::nextafter(x, towards);
  }
  return x;
}

// Where experts i and i + apart of the circle are equally far: those between are nearer, the others further away.
struct Midpoint {
  double theta, half;  // half: the distance to either
};
Midpoint midpoint(const std::vector<double>& sorted, std::size_t i, std::size_t apart) {
  const std::size_t E = sorted.size(), j = i + apart;
  const double other = sorted[j % E] + (j < E ? 0 : 2 * pi), half = (other - sorted[i]) / 2;
  return {sorted[i] + half, half};
}

// The last chosen and the first left out, or two of the chosen, tie: 0, 1 and 2 units in the last place to either side,
// so far away that their gates differ by less than a thousandth but by far more than rounding, and the exact ties of
// symmetric experts at 0 and pi. In every fourth call the experts are any.
void midpoints(Draft& x, Random& random) {
  spread(x, random);
  if (random.chance(0.25))
    for (double& mu : x.mu.values) mu = random.uniform(0, 2 * pi);
  for (double& mu : x.mu.values) mu = rounded(mu, x.dtype);
  std::vector<double> sorted = x.mu.values;
  std::sort(sorted.begin(), sorted.end());
  const auto E = static_cast<std::size_t>(x.E), top_k = static_cast<std::size_t>(x.top_k);
  const std::int64_t turn = random.integer(0, 7);
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const std::size_t i = random.bits() % E, apart = random.chance(0.75) && top_k < E ? top_k : 1;
    const Midpoint at = midpoint(sorted, i, E == 1 ? 1 : apart);
    const std::int64_t kind = (t + turn) % 8;
    if (kind < 5) {
      x.set(t, moved(at.theta, kind - 2, x.dtype));
    } else if (kind == 5) {
      // d(log g) between the two is 2 steepness sin(half) a radian.
      const double slope = 2 * x.steepness() * std::sin(at.half), gap = random.uniform(3e-4, 9e-4);
      x.set(t, at.theta + random.sign() * std::min(gap / std::max(slope, 1e-9), at.half / 2));
    } else {
      x.set(t, kind == 6 ? 0 : pi);
      if (random.chance(0.5))
        for (std::int64_t p = 0; p + 1 < x.P; p += 2) {  // pairs to either side
          const double aside = random.uniform(0, 1);
          x.phase(t, p) += aside;
          x.phase(t, p + 1) -= aside;
        }
    }
  }
}

using Filler = void (*)(Draft&, Random&);

const std::vector<std::pair<std::string, Filler>>& fillers() {
  static const std::vector<std::pair<std::string, Filler>> all{
      {"spread", spread},           {"together", together},
      {"any_experts", any_experts}, {"steep", steep},
      {"at_cut", at_cut},           {"one_sided", one_sided},
      {"all_equal", all_equal},     {"nearly_cancelling", nearly_cancelling},
      {"cancelling", cancelling}};
  return all;
}

// A cotangent of mixed size and sign. Equal ones for all gates of a token have no gradient: gates sum up to 1.
Array cotangent(const Draft& x, Random& random, const std::string& name, const Shape& shape) {
  Array array = zeros(name, x.dtype, shape);
  const double scale = std::exp2(random.uniform(-3, 3));
  for (double& value : array.values) value = rounded(scale * random.normal(), x.dtype);
  return array;
}

Problem finished(Draft& x, Random& random, const Case& c) {
  for (Array* array : {&x.phases, &x.mu})
    for (double& value : array->values) value = rounded(value, x.dtype);
  const Shape& shape = x.phases.shape;
  const Array of_gates = cotangent(x, random, "gates", {shape[0], shape[1], x.E}),
              of_weights = cotangent(x, random, "topk_weights", {shape[0], shape[1], x.top_k}),
              of_balance = cotangent(x, random, "lb", {});
  const auto wanted = [&](const Array& array) {
    return contains(c.cotangents, array.name) ? std::optional(array) : std::nullopt;
  };
  Problem problem;
  problem.inputs = {std::move(x.phases), std::move(x.mu)};
  problem.scalars = {{"kappa", x.kappa}, {"temperature", x.temperature}, {"top_k", static_cast<double>(x.top_k)}};
  problem.cotangents = {wanted(of_gates), std::nullopt, wanted(of_weights), wanted(of_balance)};
  return problem;
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols)
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < 1)
      throw std::invalid_argument(fmt::format("dims: wanted {} of 1 or more, got {}", symbol,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  const std::int64_t B = c.dims.at("B"), T = c.dims.at("T"), P = c.dims.at("P"), E = c.dims.at("E");
  return {B * T,
          P,
          E,
          std::min(c.dims.at("top_k"), E),
          c.dtype,
          zeros("phases", c.dtype, {B, T, P}),
          zeros("expert_phases", c.dtype, {E})};
}

}  // namespace

std::vector<double> farey_phases(std::int64_t experts) {
  // The sequence from its two first fractions on (Graham, Knuth and Patashnik, Concrete Mathematics, 4.5).
  const std::int64_t order = 2 * experts;
  std::vector<double> fractions;
  std::int64_t a = 0, b = 1, c = 1, d = order;
  fractions.push_back(0);
  while (c <= order) {
    const std::int64_t k = (order + b) / d;
    std::tie(a, b, c, d) = std::tuple(c, d, k * c - a, k * d - b);
    fractions.push_back(static_cast<double>(a) / static_cast<double>(b));
  }
  std::vector<double> phases;
  const auto n = static_cast<std::int64_t>(fractions.size());
  for (std::int64_t i = 0; i < experts; ++i)
    phases.push_back(2 * pi * fractions[static_cast<std::size_t>(i * n / experts)]);
  return phases;
}

const std::vector<std::string>& smooth_fill_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, filler] : fillers()) list.push_back(name);
    return list;
  }();
  return names;
}

std::vector<std::string> fill_names() {
  std::vector<std::string> names = smooth_fill_names();
  names.emplace_back("midpoints");
  return names;
}

Problem fill(const Case& c) {
  Draft x = blank(c);
  Random random(c.seed);
  if (c.fill == "midpoints") {
    midpoints(x, random);
    return finished(x, random, c);
  }
  for (const auto& [name, filler] : fillers())
    if (name == c.fill) {
      filler(x, random);
      return finished(x, random, c);
    }
  throw std::invalid_argument(
      fmt::format("fill: '{}' is unknown; wanted one of {}", c.fill, fmt::join(fill_names(), ", ")));
}

}  // namespace fractus::moe_gate
