// LayerNorm of a row of Companions.
//
// As polynomials, mean and variance would carry the row's own error several times over. Here what a row's error and
// what a kernel's roundings do to c and r is bounded as a whole:
//
//   c - c' = delta - mean(delta), so mean(c^2) moves by at most 2 mean(|c| |delta|) + mean(delta^2), the sum over c
//   being 0; and mean(w x_hat) by mean(|w - mean(w)| |delta|) r, for the same reason.
//
// Covered are the variance from deviations about the mean, in any order or by Welford's recurrence; r as a reciprocal
// root or a quotient; x r - mean r; r w first. Not covered is mean(x^2) - mean(x)^2, which cancels.
#pragma once

#include "oracle/companion_row.h"
#include "oracle/layer_norm.h"

namespace fractus::oracle {

// Of r: the sum with eps, a root or reciprocal root good to 2 units in the last place, a reciprocal (2).
inline constexpr double reciprocal_root_roundings = 7;
// Of y beyond r: the product with c, the one with w.
inline constexpr double normed_roundings = 2;

namespace layer_norm_detail {

// By what share 1/sqrt(V') may differ from 1/sqrt(V) for |V' - V| <= moved: sqrt(V/(V - moved)) - 1 is the larger side.
inline double share_of_root(double V, double moved) {
  const double least = (V - moved) * (1 - 0x1p-40);
  if (!(least > 0)) return unbounded;
  const double t = moved / least;
  return t < 0x1p-20 ? t / 2 : std::sqrt(1 + t) - 1;  // sqrt(1 + t) <= 1 + t/2
}

}  // namespace layer_norm_detail

template <DType judged>
Normed<Companion<judged>> layer_norm(const Row<Companion<judged>>& x, const Row<Companion<judged>>& weight,
                                     const Row<Companion<judged>>& bias) {
  using R = Companion<judged>;
  const std::size_t d = x.size();
  const auto count = static_cast<double>(d);
  const double u = unit_roundoff(judged);

  Base<judged> sum = 0, squares = 0, weights = 0;
  for (std::size_t i = 0; i < d; ++i) {
    sum += x.v[i];
    weights += weight.v[i];
  }
  const Base<judged> mean = sum / static_cast<Base<judged>>(d), mean_weight = weights / static_cast<Base<judged>>(d);
  std::vector<Base<judged>> c(d);
  std::vector<double> delta(d);  // the error of x
  double mean_delta = 0, mean_x = 0, moved = 0;
  for (std::size_t i = 0; i < d; ++i) {
    c[i] = x.v[i] - mean;
    squares += c[i] * c[i];
    delta[i] = error(x.get(i));
    mean_delta += delta[i] / count;
    mean_x += (magnitude(x.v[i]) + delta[i]) / count;
    moved += (2 * magnitude(c[i]) * delta[i] + delta[i] * delta[i]) / count;
  }
  const Base<judged> eps = power_of_ten<R>(layer_norm_exponent).v;
  const Base<judged> V = squares / static_cast<Base<judged>>(d) + eps, r = 1 / std::sqrt(V);

  // The kernel's mean of its own x: d - 1 additions and a quotient; Welford's recurrence rounds up to 3 times more
  // on the way of one term. Its c: a difference, or x r and mean r apart.
  const double of_mean = gamma<judged>(count + 4) * mean_x;
  std::vector<double> own(d);  // what the kernel's roundings do to c
  double rounded_square = 0, mean_own = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double most_x = magnitude(x.v[i]) + delta[i], most_c = magnitude(c[i]) + delta[i] + mean_delta;
    own[i] = of_mean + gamma<judged>(3) * (most_x + mean_x + of_mean);
    rounded_square += (2 * most_c * own[i] + own[i] * own[i]) / count;
    rounded_square += gamma<judged>(count + 4) * (most_c + own[i]) * (most_c + own[i]) / count;
    mean_own += own[i] / count;
  }
  const double V_double = static_cast<double>(V), r_double = static_cast<double>(r);
  const double inherited_share = layer_norm_detail::share_of_root(V_double, moved * (1 + 0x1p-30));
  const double share = layer_norm_detail::share_of_root(
      V_double, (moved + rounded_square + 2 * u * static_cast<double>(eps)) * (1 + 0x1p-30));
  const bool bounded = share < 1;
  const double rounding = gamma<judged>(reciprocal_root_roundings), after = gamma<judged>(normed_roundings);
  // |r'/r - 1| of the kernel's r' against the true one, and against that of its own x.
  const double of_r = share + rounding * (1 + share);
  const double own_share = layer_norm_detail::share_of_root(
      V_double - moved, (rounded_square + 2 * u * static_cast<double>(eps)) * (1 + 0x1p-30));
  const double of_own_r = (own_share + rounding * (1 + own_share)) * (1 + inherited_share);

  Normed<R> result{Row<R>(d), Row<R>(d)};
  result.reciprocal = {r, r_double, 0, bounded ? r_double * of_r : unbounded, r_double};
  const double floor = 8 * smallest_subnormal(judged);
  double mean_fresh = 0, mean_m = 0, inherited_mean = 0;
  Base<judged> weighted = 0, mean_y = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double most_c = magnitude(c[i]) + delta[i] + mean_delta;
    // of x_hat: c's error times r', and c times r's.
    const double c_error = delta[i] + mean_delta + own[i];
    const double hat_error =
        r_double * (c_error * (1 + of_r) + magnitude(c[i]) * of_r + after * (magnitude(c[i]) + c_error) * (1 + of_r)) +
        floor;
    const Base<judged> hat = c[i] * r, w = weight.v[i], y = hat * w + bias.v[i];
    const double w_abs = magnitude(w);
    // The last sum, and the product where a kernel multiplies w by r first.
    const double fresh =
        w_abs * r_double * (own[i] * (1 + of_r) + most_c * of_own_r + after * (most_c + own[i]) * (1 + of_r)) +
        floor * (1 + w_abs);
    const double last = u * (magnitude(hat * w) + magnitude(bias.v[i]) + w_abs * hat_error);
    const auto closed = [&](Base<judged> v, double e) {
      const double m = magnitude(v);
      return R{v, m, 0, bounded ? e * (1 + 0x1p-30) : unbounded, std::max({m, w_abs, r_double})};
    };
    result.x_hat.set(i, closed(hat, hat_error));
    result.y.set(i, closed(y, w_abs * hat_error + last + floor * w_abs));
    weighted += w * hat;
    mean_y += y;
    mean_m += (magnitude(y) + w_abs * hat_error + last) / count;
    mean_fresh += (fresh + last) / count;
    inherited_mean += magnitude(w - mean_weight) * delta[i] / count;
  }
  mean_y /= static_cast<Base<judged>>(d);
  const double of_weighted = magnitude(weighted) / count;
  const double moved_mean =
      inherited_mean * r_double * (1 + inherited_share) + of_weighted * inherited_share + mean_fresh;
  result.mean_y = {mean_y, magnitude(mean_y), 0,
                   bounded ? (moved_mean + gamma<judged>(count + 4) * mean_m) * (1 + 0x1p-30) : unbounded,
                   std::max(1.0, magnitude(mean_y))};
  return result;
}

}  // namespace fractus::oracle
