#include "properties/kuramoto_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "contracts/kuramoto.h"
#include "properties/random.h"

namespace fractus::kuramoto {
namespace {

constexpr double turn = 2 * std::numbers::pi;

struct Draft {
  std::int64_t tokens, d, P, r, n_steps;
  DType dtype;
  Array hidden, omega, U, lambda, g;
  double dt = 0.1, damping = 0.01;  // the block's own

  double& element(std::int64_t t, std::int64_t i) { return hidden.values[static_cast<std::size_t>(t * d + i)]; }
  double& frequency(std::int64_t p) { return omega.values[static_cast<std::size_t>(p)]; }
  double& u(std::int64_t p, std::int64_t k) { return U.values[static_cast<std::size_t>(p * r + k)]; }
};

double log_uniform(Random& random, double low, double high) {
  return std::exp(random.uniform(std::log(low), std::log(high)));
}

// Rows about a mean each, anywhere in [low, high].
void means(Draft& x, Random& random, double low, double high) {
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    const double mean = random.uniform(low, high);
    for (std::int64_t i = 0; i < x.d; ++i) x.element(t, i) = mean + random.normal();
  }
}

// Sums over j of |K_ij| near `strength`, lambda of either sign.
void couple(Draft& x, Random& random, double strength) {
  const double scale = std::sqrt(strength / (static_cast<double>(x.P) * std::sqrt(static_cast<double>(x.r))));
  for (double& value : x.U.values) value = scale * random.normal();
  for (double& value : x.lambda.values) value = random.sign() * random.uniform(0.4, 1.8);
}

void ordinary(Draft& x, Random& random) {
  means(x, random, -1.5, 1.5);
  for (double& value : x.omega.values) value = random.normal();
  couple(x, random, random.uniform(0.5, 3));
  for (double& value : x.g.values) value = random.normal();
  if (random.chance(0.5)) return;
  x.dt = log_uniform(random, 0.02, 0.3);
  x.damping = log_uniform(random, 0.003, 0.3);
}

// What a LayerNorm of weight 1 and bias 0 gives: the mean of a row is nothing but its roundings.
void fresh(Draft& x, Random& random) {
  ordinary(x, random);
  x.dt = 0.1, x.damping = 0.01;
  const auto d = static_cast<double>(x.d);
  for (std::int64_t t = 0; t < x.tokens; ++t) {
    double mean = 0, variance = 0;
    for (std::int64_t i = 0; i < x.d; ++i) mean += x.element(t, i) / d;
    for (std::int64_t i = 0; i < x.d; ++i) variance += (x.element(t, i) - mean) * (x.element(t, i) - mean) / d;
    for (std::int64_t i = 0; i < x.d; ++i) x.element(t, i) = (x.element(t, i) - mean) / std::sqrt(variance + 1e-5);
  }
}

// Stages far apart, so that their weights matter; bounds grow with coupling, dt and the number of steps alike.
void strong(Draft& x, Random& random) {
  ordinary(x, random);
  x.dt = random.chance(0.5) ? 0.5 : 1;
  x.damping = log_uniform(random, 0.003, 0.1);
  couple(x, random, random.uniform(1.5, 3) / (x.dt * static_cast<double>(std::max<std::int64_t>(1, x.n_steps))));
}

void negative_means(Draft& x, Random& random) {
  ordinary(x, random);
  means(x, random, -3, -0.05);
  x.damping = log_uniform(random, 0.05, 0.5);
}

// Hundreds of turns.
void large_means(Draft& x, Random& random) {
  ordinary(x, random);
  const double sign = random.sign();
  means(x, random, sign > 0 ? 50 : -400, sign > 0 ? 400 : -50);
}

void undamped(Draft& x, Random& random) {
  ordinary(x, random);
  x.damping = 0;
}

void heavily_damped(Draft& x, Random& random) {
  ordinary(x, random);
  x.damping = random.uniform(1, 8);
  x.dt = random.uniform(0.02, 0.2);
}

void unit_lambda(Draft& x, Random& random) {
  ordinary(x, random);
  for (double& value : x.lambda.values) value = 1;
}

// All terms of a sum have one sign and one size, so that their roundings point one way.
void equal(Draft& x, Random& random) {
  ordinary(x, random);
  const auto all = [](Array& array, double value) { std::fill(array.values.begin(), array.values.end(), value); };
  all(x.hidden, random.uniform(0.05, 0.9));
  all(x.omega, random.uniform(0.5, 1.5));
  all(x.U, std::sqrt(random.uniform(0.5, 2) / static_cast<double>(x.P * x.r)));
  all(x.lambda, random.uniform(0.5, 1.5));
  all(x.g, random.uniform(0.5, 1.5));
}

// Large numbers in hidden that cancel to an ordinary mean.
void cancelling(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t t = 0; t < x.tokens; ++t)
    for (std::int64_t i = 0; i + 1 < x.d; i += 2) {
      const double large = random.sign() * log_uniform(random, 1, 100);
      x.element(t, i) += large;
      x.element(t, i + 1) -= large;
    }
}

// Rows, frequencies and couplings of 0, as a run may start with; the angles are then the offsets themselves.
void zeros_among(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t t = 0; t < x.tokens; ++t)
    if (random.chance(0.4))
      for (std::int64_t i = 0; i < x.d; ++i) x.element(t, i) = random.chance(0.5) ? 0.0 : -0.0;
  for (Array* array : {&x.omega, &x.U, &x.lambda, &x.g})
    for (double& value : array->values)
      if (random.chance(0.4)) value = 0;
}

// Frequencies so high that an oscillator goes through several turns in a step.
void fast(Draft& x, Random& random) {
  ordinary(x, random);
  for (double& value : x.omega.values) value = random.sign() * random.uniform(0.5, 12) / x.dt;
}

// theta after `steps` steps in double, the last wrap left out, for a token of that mean. As the definition has it; only
// to aim by, so nothing hangs on its roundings.
std::vector<double> simulated(const Draft& x, double mean, std::int64_t steps) {
  const auto P = static_cast<std::size_t>(x.P), r = static_cast<std::size_t>(x.r);
  const auto rate = [&](const std::vector<double>& theta) {
    std::vector<double> sine(r), cosine(r), f(P);
    for (std::size_t k = 0; k < r; ++k)
      for (std::size_t p = 0; p < P; ++p) {
        sine[k] += x.lambda.values[k] * x.U.values[p * r + k] * std::sin(theta[p]);
        cosine[k] += x.lambda.values[k] * x.U.values[p * r + k] * std::cos(theta[p]);
      }
    for (std::size_t p = 0; p < P; ++p) {
      f[p] = x.omega.values[p] - x.damping * theta[p];
      for (std::size_t k = 0; k < r; ++k)
        f[p] += x.U.values[p * r + k] * (std::cos(theta[p]) * sine[k] - std::sin(theta[p]) * cosine[k]);
    }
    return f;
  };
  const auto moved = [&](std::vector<double> theta, double h, const std::vector<double>& k) {
    for (std::size_t p = 0; p < P; ++p) theta[p] += h * k[p];
    return theta;
  };
  std::vector<double> theta(P);
  for (std::size_t p = 0; p < P; ++p) theta[p] = turn * (mean + static_cast<double>(p) / static_cast<double>(P));
  for (std::int64_t step = 0; step < steps; ++step) {
    for (double& angle : theta) angle -= turn * std::floor(angle / turn);
    const auto k1 = rate(theta), k2 = rate(moved(theta, x.dt / 2, k1)), k3 = rate(moved(theta, x.dt / 2, k2)),
               k4 = rate(moved(theta, x.dt, k3));
    for (std::size_t p = 0; p < P; ++p) theta[p] += x.dt / 6 * (k1[p] + 2 * k2[p] + 2 * k3[p] + k4[p]);
  }
  return theta;
}

double from_whole_turns(double angle) { return std::remainder(angle, turn); }

// The last element makes the row's mean, as exactly as the dtype has it.
void set_mean(Draft& x, std::int64_t t, double mean) {
  double rest = 0;
  for (std::int64_t i = 0; i + 1 < x.d; ++i) {
    x.element(t, i) = rounded(x.element(t, i), x.dtype);
    rest += x.element(t, i);
  }
  x.element(t, x.d - 1) = mean * static_cast<double>(x.d) - rest;
}

// Angles at a wrap: before the first step, or behind any of them, the last included; exactly there, 1 and 2 units in
// the last place of 2 pi to either side, and at distances that a bound has to decide.
void near_wrap(Draft& x, Random& random) {
  ordinary(x, random);
  if (random.chance(0.5)) x.damping = log_uniform(random, 0.05, 0.5);
  const double ulp = 4 * 2 * unit_roundoff(x.dtype);  // of numbers in [4, 8)
  const auto distance = [&] {
    const double units[] = {0, 0, 1, -1, 2, -2};
    return random.chance(0.6) ? units[random.integer(0, 5)] * ulp : random.sign() * log_uniform(random, ulp, 0.1);
  };
  // The first token has two at once: one before the first step, and another, by its own frequency, behind it.
  if (x.tokens > 0 && x.n_steps > 0) {
    const std::int64_t p = random.integer(0, x.P - 1), q = random.integer(0, x.P - 1);
    const double mean = -static_cast<double>(p) / static_cast<double>(x.P);
    set_mean(x, 0, mean);
    for (int k = 0; k < 4; ++k)
      x.frequency(q) -= from_whole_turns(simulated(x, mean, 1)[static_cast<std::size_t>(q)]) / x.dt;
  }
  for (std::int64_t t = x.n_steps > 0 ? 1 : 0; t < x.tokens; ++t) {
    const std::int64_t p = random.integer(0, x.P - 1), step = random.integer(0, x.n_steps);
    double mean = static_cast<double>(random.integer(-2, 2)) - static_cast<double>(p) / static_cast<double>(x.P);
    // All angles turn with the mean, by a little less behind each step for the damping.
    if (step > 0)
      for (int k = 0; k < 4; ++k)
        mean -= from_whole_turns(simulated(x, mean, step)[static_cast<std::size_t>(p)]) /
                (turn * std::exp(-x.dt * x.damping * static_cast<double>(step)));
    set_mean(x, t, mean + distance() / turn);
  }
}

using Filler = void (*)(Draft&, Random&);
const std::vector<std::pair<std::string, Filler>>& fillers() {
  static const std::vector<std::pair<std::string, Filler>> all{
      {"ordinary", ordinary},
      {"negative_means", negative_means},
      {"strong", strong},
      {"fresh", fresh},
      {"large_means", large_means},
      {"undamped", undamped},
      {"heavily_damped", heavily_damped},
      {"unit_lambda", unit_lambda},
      {"equal", equal},
      {"cancelling", cancelling},
      {"zeros_among", zeros_among},
      {"fast", fast},
      {near_wrap_fill, near_wrap},
  };
  return all;
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols) {
    const std::int64_t least = symbol == "B" || symbol == "T" || symbol == "n_steps" ? 0 : 1;
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < least)
      throw std::invalid_argument(fmt::format("dims: wanted {} of {} or more, got {}", symbol, least,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  }
  const std::int64_t B = c.dims.at("B"), T = c.dims.at("T"), d = c.dims.at("d"), P = c.dims.at("P"), r = c.dims.at("r");
  return {B * T,
          d,
          P,
          r,
          c.dims.at("n_steps"),
          c.dtype,
          zeros("hidden", c.dtype, {B, T, d}),
          zeros("omega", c.dtype, {P}),
          zeros("coupling_u", c.dtype, {P, r}),
          zeros("coupling_lambda", c.dtype, {r}),
          zeros("theta", c.dtype, {B, T, P})};
}

}  // namespace

std::vector<std::string> fill_names() {
  std::vector<std::string> names;
  for (const auto& [name, filler] : fillers()) names.push_back(name);
  return names;
}

std::vector<std::string> smooth_fill_names() {
  std::vector<std::string> names = fill_names();
  std::erase(names, near_wrap_fill);
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
  for (Array* array : {&x.hidden, &x.omega, &x.U, &x.lambda, &x.g})
    for (double& value : array->values) value = rounded(value, x.dtype);
  Problem problem;
  problem.inputs = {std::move(x.hidden), std::move(x.omega), std::move(x.U), std::move(x.lambda)};
  problem.scalars = {{"n_steps", static_cast<double>(x.n_steps)}, {"dt", x.dt}, {"damping", x.damping}};
  if (contains(c.cotangents, "theta"))
    problem.cotangents = {std::move(x.g)};
  else
    problem.cotangents.emplace_back();
  return problem;
}

}  // namespace fractus::kuramoto
