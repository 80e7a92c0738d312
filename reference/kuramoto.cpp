// The reference of kuramoto: every stage of every step as a tensor of its own, differentiated by autograd. It shares no
// code with a candidate; what both refuse the same way is written twice, here and there.
#include "contracts/kuramoto.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "contracts/form.h"
#include "reference/parts.h"

namespace fractus {
namespace reference {

using at::Tensor;

Tensor oscillate(const Tensor& hidden, const Oscillators& of, double steps, double dt, double damping) {
  constexpr double turn = 2 * std::numbers::pi;
  const auto oscillators = static_cast<double>(of.omega.size(0));
  const auto coupled = [&](const Tensor& x) { return at::matmul(at::matmul(x, of.U) * of.lambda, of.U.t()); };
  const auto f = [&](const Tensor& theta) {
    const Tensor sine = theta.sin(), cosine = theta.cos();
    return of.omega - damping * theta + cosine * coupled(sine) - sine * coupled(cosine);
  };
  const Tensor offsets = at::arange(of.omega.size(0), hidden.options()) / oscillators * turn;
  Tensor theta = at::remainder(hidden.mean(-1, /*keepdim=*/true) * turn + offsets, turn);
  for (double step = 0; step < steps; ++step) {
    const Tensor k1 = f(theta);
    const Tensor k2 = f(theta + dt / 2 * k1);
    const Tensor k3 = f(theta + dt / 2 * k2);
    const Tensor k4 = f(theta + dt * k3);
    theta = at::remainder(theta + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), turn);
  }
  return theta;
}

}  // namespace reference

namespace kuramoto {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("kuramoto: " + what); }

void check(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  if (inputs[0].size(2) == 0) refuse("hidden: wanted at least one column, got " + to_string(inputs[0].sizes().vec()));
  const double n_steps = scalars.at("n_steps");
  if (!(n_steps >= 0 && std::isfinite(n_steps)) || n_steps != std::floor(n_steps))
    refuse(fmt::format("n_steps: wanted a whole number of 0 or more, got {}", n_steps));
  for (const char* name : {"dt", "damping"})
    if (!std::isfinite(scalars.at(name)))
      refuse(fmt::format("{}: wanted a finite number, got {}", name, scalars.at(name)));
  reference::check_finite("kuramoto", "hidden", inputs[0], "row");
  reference::check_finite("kuramoto", "omega", inputs[1].unsqueeze(1), "oscillator");
  reference::check_finite("kuramoto", "coupling_u", inputs[2], "oscillator");
  reference::check_finite("kuramoto", "coupling_lambda", inputs[3].unsqueeze(1), "rank");
}

Tensors kuramoto_staged(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  check(inputs, scalars);
  return {reference::oscillate(inputs[0], {inputs[1], inputs[2], inputs[3]}, scalars.at("n_steps"), scalars.at("dt"),
                               scalars.at("damping"))};
}

const Registration registered{{
    .kernel = "kuramoto",
    .name = "kuramoto_staged",
    .role = Role::reference,
    .summary = "every stage of every step by itself, differentiated by autograd",
    .run = kuramoto_staged,
}};

}  // namespace
}  // namespace kuramoto
}  // namespace fractus
