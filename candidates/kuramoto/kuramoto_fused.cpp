// All steps in one node of the graph: a step keeps nothing but the angles that it starts from, and its backward makes
// the four stages once more.
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "candidates/kuramoto/fused.h"
#include "contracts/form.h"
#include "contracts/kuramoto.h"

namespace fractus::kuramoto {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

constexpr double turn = 2 * std::numbers::pi;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("kuramoto: " + what); }

void require_finite(const Tensor& tensor, const char* name, const char* row) {
  const Tensor rows = tensor.detach().isfinite().logical_not_().flatten(0, -2).any(-1).nonzero();
  if (rows.numel() == 0) return;
  refuse(
      fmt::format("{}: wanted finite values, got one that is not in {} {}", name, row, rows[0].item<std::int64_t>()));
}

struct Settled {
  std::int64_t steps;
  double dt, damping;
};

Settled checked(const Tensors& inputs, const Scalars& scalars) {
  check_inputs(contract(), inputs);
  if (inputs[0].size(2) == 0) refuse("hidden: wanted at least one column, got " + to_string(inputs[0].sizes().vec()));
  check_steps("kuramoto", scalars);
  require_finite(inputs[0], "hidden", "row");
  require_finite(inputs[1].unsqueeze(1), "omega", "oscillator");
  require_finite(inputs[2], "coupling_u", "oscillator");
  require_finite(inputs[3].unsqueeze(1), "coupling_lambda", "rank");
  return {static_cast<std::int64_t>(scalars.at("n_steps")), scalars.at("dt"), scalars.at("damping")};
}

struct Parameters {
  Tensor omega, U, lambda;
};

struct Gradients {
  Tensor omega, U, lambda;
};

// One evaluation of f at rows of angles (N,P), with what its own gradient needs.
struct Field {
  const Parameters& of;
  double damping;
  Tensor sine, cosine, sine_by_rank, cosine_by_rank, to_cosine, to_sine, value;

  Field(const Parameters& parameters, double damping, const Tensor& theta)
      : of(parameters),
        damping(damping),
        sine(theta.sin()),
        cosine(theta.cos()),
        sine_by_rank(at::mm(sine, of.U)),
        cosine_by_rank(at::mm(cosine, of.U)),
        to_cosine(at::mm(sine_by_rank * of.lambda, of.U.t())),
        to_sine(at::mm(cosine_by_rank * of.lambda, of.U.t())),
        value(cosine.mul(to_cosine).sub_(sine.mul(to_sine)).add_(of.omega).sub_(theta, damping)) {}

  // The gradient that g brings to the angles; those of the parameters are added up. K = U diag(lambda) U^T is
  // symmetric, so it takes g cos back to sin theta as it took sin theta there, and -g sin to cos theta.
  Tensor backward(const Tensor& g, Gradients& sum) const {
    const Tensor g_cosine = g * cosine, g_sine = (g * sine).neg_();
    const Tensor from_cosine = at::mm(g_cosine, of.U), from_sine = at::mm(g_sine, of.U);  // by rank
    sum.omega.add_(g.sum(0));
    sum.lambda.add_(from_cosine.mul(sine_by_rank).sum(0)).add_(from_sine.mul(cosine_by_rank).sum(0));
    const Tensor weighted_cosine = from_cosine * of.lambda, weighted_sine = from_sine * of.lambda;
    sum.U.addmm_(g_cosine.t(), sine_by_rank * of.lambda).addmm_(sine.t(), weighted_cosine);
    sum.U.addmm_(g_sine.t(), cosine_by_rank * of.lambda).addmm_(cosine.t(), weighted_sine);
    const Tensor to_sines = at::mm(weighted_cosine, of.U.t()).sub_(g.mul(to_sine));
    const Tensor to_cosines = at::mm(weighted_sine, of.U.t()).add_(g.mul(to_cosine));
    return to_sines.mul_(cosine).sub_(to_cosines.mul_(sine)).sub_(g, damping);
  }
};

// Four stages from the angles at a step's start: where each is evaluated, and what comes of it.
struct Stages {
  Field k1, k2, k3, k4;

  Stages(const Parameters& of, const Settled& how, const Tensor& theta)
      : k1(of, how.damping, theta),
        k2(of, how.damping, theta.add(k1.value, how.dt / 2)),
        k3(of, how.damping, theta.add(k2.value, how.dt / 2)),
        k4(of, how.damping, theta.add(k3.value, how.dt)) {}

  Tensor end(const Tensor& theta, double dt) const {
    const Tensor slope = (k2.value + k3.value).mul_(2).add_(k1.value).add_(k4.value);
    return theta.add(slope, dt / 6).remainder_(turn);
  }

  // From g of the step's end to that of its start. A wrap has the derivative 1.
  Tensor backward(const Tensor& g, double dt, Gradients& sum) const {
    const Tensor sixth = g * (dt / 6), third = g * (dt / 3);
    const Tensor at4 = k4.backward(sixth, sum);
    const Tensor at3 = k3.backward(third.add(at4, dt), sum);
    const Tensor at2 = k2.backward(third.add(at3, dt / 2), sum);
    const Tensor at1 = k1.backward(sixth.add(at2, dt / 2), sum);
    return at1.add_(at2).add_(at3).add_(at4).add_(g);
  }
};

struct Fused : torch::autograd::Function<Fused> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& omega, const Tensor& U,
                        const Tensor& lambda, std::int64_t steps, double dt, double damping) {
    const std::int64_t oscillators = omega.size(0);
    const Settled how{steps, dt, damping};
    const Parameters parameters{omega, U, lambda};
    const Tensor offsets = at::arange(oscillators, hidden.options()).mul_(turn / static_cast<double>(oscillators));
    Tensor theta = hidden.mean(-1, /*keepdim=*/true).mul_(turn).add(offsets).remainder_(turn).flatten(0, 1);
    variable_list saved{omega, U, lambda};
    for (std::int64_t step = 0; step < steps; ++step) {
      saved.push_back(theta);
      theta = Stages(parameters, how, theta).end(theta, dt);
    }
    context->save_for_backward(saved);
    context->saved_data["dt"] = dt;
    context->saved_data["damping"] = damping;
    context->saved_data["hidden"] = hidden.sizes().vec();
    return theta.view({hidden.size(0), hidden.size(1), oscillators});
  }

  static variable_list backward(AutogradContext* context, const variable_list& cotangents) {
    const variable_list saved = context->get_saved_variables();
    const Parameters parameters{saved[0], saved[1], saved[2]};
    const Settled how{0, context->saved_data.at("dt").toDouble(), context->saved_data.at("damping").toDouble()};
    const auto shape = context->saved_data.at("hidden").toIntVector();
    Gradients sum{at::zeros_like(parameters.omega), at::zeros_like(parameters.U, at::MemoryFormat::Contiguous),
                  at::zeros_like(parameters.lambda)};
    Tensor g = cotangents[0].reshape({-1, parameters.omega.size(0)});
    for (std::size_t step = saved.size(); step-- > 3;)
      g = Stages(parameters, how, saved[step]).backward(g, how.dt, sum);
    const Tensor each = g.sum(-1).mul_(turn / static_cast<double>(shape[2]));
    const Tensor dhidden = each.view({shape[0], shape[1], 1}).expand(shape).contiguous();
    return {dhidden, sum.omega, sum.U, sum.lambda, {}, {}, {}};
  }
};

Tensors run(const Tensors& inputs, const Scalars& scalars, const Settings&) {
  const Settled how = checked(inputs, scalars);
  return {oscillate(inputs[0], inputs[1], inputs[2], inputs[3], how.steps, how.dt, how.damping)};
}

const Registration registered{{
    .kernel = "kuramoto",
    .name = "kuramoto_fused",
    .role = Role::candidate,
    .summary = "all steps in one node that keeps each step's start; backward makes the stages once more",
    .run = run,
}};

}  // namespace

void check_steps(const std::string& kernel, const Scalars& scalars) {
  const auto refuse = [&](const std::string& what) { throw std::invalid_argument(kernel + ": " + what); };
  const double n_steps = scalars.at("n_steps");
  if (!(n_steps >= 0 && std::isfinite(n_steps)) || n_steps != std::floor(n_steps))
    refuse(fmt::format("n_steps: wanted a whole number of 0 or more, got {}", n_steps));
  for (const char* name : {"dt", "damping"})
    if (!std::isfinite(scalars.at(name)))
      refuse(fmt::format("{}: wanted a finite number, got {}", name, scalars.at(name)));
}

Tensor oscillate(const Tensor& hidden, const Tensor& omega, const Tensor& coupling_u, const Tensor& coupling_lambda,
                 std::int64_t steps, double dt, double damping) {
  return Fused::apply(hidden, omega, coupling_u, coupling_lambda, steps, dt, damping);
}

}  // namespace fractus::kuramoto
