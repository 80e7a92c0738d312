// The reference of kuramoto: every stage of every step as a tensor of its own, differentiated by autograd. It shares no
// code with a candidate; what both refuse the same way is written twice, here and there.
#include "contracts/kuramoto.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "contracts/form.h"

namespace fractus::kuramoto {
namespace {

using at::Tensor;

constexpr double turn = 2 * std::numbers::pi;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("kuramoto: " + what); }

// `row` says what the outermost dimensions count: a row of the whole batch, an oscillator.
void check_finite(const std::string& name, const Tensor& tensor, const std::string& row) {
  const Tensor bad = tensor.detach().isfinite().all(-1).logical_not().flatten().nonzero();
  if (bad.numel() > 0)
    refuse(fmt::format("{}: wanted finite values, got one that is not in {} {}", name, row,
                       bad[0][0].item<std::int64_t>()));
}

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  if (inputs[0].size(2) == 0) refuse("hidden: wanted at least one column, got " + to_string(inputs[0].sizes().vec()));
  const double n_steps = scalars.at("n_steps");
  if (!(n_steps >= 0 && std::isfinite(n_steps)) || n_steps != std::floor(n_steps))
    refuse(fmt::format("n_steps: wanted a whole number of 0 or more, got {}", n_steps));
  for (const char* name : {"dt", "damping"})
    if (!std::isfinite(scalars.at(name)))
      refuse(fmt::format("{}: wanted a finite number, got {}", name, scalars.at(name)));
  check_finite("hidden", inputs[0], "row");
  check_finite("omega", inputs[1].unsqueeze(1), "oscillator");
  check_finite("coupling_u", inputs[2], "oscillator");
  check_finite("coupling_lambda", inputs[3].unsqueeze(1), "rank");
}

Tensors kuramoto_staged(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check(inputs, scalars);
  const Tensor &hidden = inputs[0], &omega = inputs[1], &U = inputs[2], &lambda = inputs[3];
  const double dt = scalars.at("dt"), damping = scalars.at("damping");
  const std::int64_t oscillators = omega.size(0);

  const auto coupled = [&](const Tensor& x) { return at::matmul(at::matmul(x, U) * lambda, U.t()); };
  const auto f = [&](const Tensor& theta) {
    const Tensor sine = theta.sin(), cosine = theta.cos();
    return omega - damping * theta + cosine * coupled(sine) - sine * coupled(cosine);
  };

  const Tensor offsets = at::arange(oscillators, hidden.options()) / static_cast<double>(oscillators) * turn;
  Tensor theta = at::remainder(hidden.mean(-1, /*keepdim=*/true) * turn + offsets, turn);
  for (double step = 0; step < scalars.at("n_steps"); ++step) {
    const Tensor k1 = f(theta);
    const Tensor k2 = f(theta + dt / 2 * k1);
    const Tensor k3 = f(theta + dt / 2 * k2);
    const Tensor k4 = f(theta + dt * k3);
    theta = at::remainder(theta + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), turn);
  }
  return {theta};
}

const Registration registered{{
    .kernel = "kuramoto",
    .name = "kuramoto_staged",
    .role = Role::reference,
    .summary = "every stage of every step by itself, differentiated by autograd",
    .run = kuramoto_staged,
}};

}  // namespace
}  // namespace fractus::kuramoto
