#include "candidates/moe_gate/routing.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "contracts/moe_gate.h"

namespace fractus::moe_gate {

using at::Tensor;

void check_routing(const std::string& kernel, const Scalars& scalars, std::int64_t experts) {
  const auto refuse = [&](const std::string& what) { throw std::invalid_argument(kernel + ": " + what); };
  const double kappa = scalars.at("kappa"), temperature = scalars.at("temperature"), top_k = scalars.at("top_k");
  if (!std::isfinite(kappa)) refuse(fmt::format("kappa: wanted a finite number, got {}", kappa));
  if (!(temperature > 0 && std::isfinite(temperature)))
    refuse(fmt::format("temperature: wanted a finite number above 0, got {}", temperature));
  if (!(std::abs(kappa / temperature) <= steepest))
    refuse(fmt::format("kappa: wanted kappa / temperature of at most {}, got {} / {}", steepest, kappa, temperature));
  if (!(top_k >= 1 && top_k <= static_cast<double>(experts)) || top_k != std::floor(top_k))
    refuse(fmt::format("top_k: wanted a whole number from 1 to {}, got {}", experts, top_k));
}

// The sum of magnitudes is finite only if every number is; one that overflows is looked into, and found whole.
void require_finite(const std::string& kernel, const std::string& name, const Tensor& tensor, std::int64_t rows,
                    const char* row) {
  if (tensor.numel() == 0 || std::isfinite(tensor.detach().abs().sum().item<double>())) return;
  const Tensor bad = tensor.detach().reshape({rows, -1}).isfinite().logical_not_().any(1).nonzero();
  if (bad.numel() == 0) return;
  throw std::invalid_argument(fmt::format("{}: {}: wanted finite values, got one that is not in {} {}", kernel, name,
                                          row, bad[0].item<std::int64_t>()));
}

Tensor shares(const Tensor& x) {
  const Tensor sum = x.sum(-1, /*keepdim=*/true), falls_back = sum <= cut;
  return (x / sum.masked_fill(falls_back, 1)).masked_fill(falls_back, 1 / static_cast<double>(x.size(-1)));
}

Tensor load_balance(const Tensor& gates) {
  const auto experts = static_cast<double>(gates.size(-1));
  return gates.flatten(0, 1).mean(0).sub_(1 / experts).square().sum() * experts;
}

}  // namespace fractus::moe_gate
