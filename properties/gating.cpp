#include "properties/gating.h"

#include "contracts/moe_gate.h"

namespace fractus::gating {

std::string class_of_top_k(const Case& c) {
  const std::int64_t E = c.dims.at("E"), top_k = c.dims.at("top_k");
  return E == 1 ? "" : top_k == E ? "top_k = E" : top_k == 1 ? "top_k = 1" : "1 < top_k < E";
}

Violation too_steep() {
  return {.name = "too_steep",
          .text = "kappa / temperature of 1.1 times the most",
          .spoiled = spoiled_scalar(
              "kappa", [](const Problem& p) { return 1.1 * moe_gate::steepest * p.scalars.at("temperature"); }),
          .same_as = [](Problem problem) { return problem; }};
}

Violation temperature_0() {
  return {.name = "temperature_0",
          .text = "a temperature of 0",
          .spoiled = spoiled_scalar("temperature", [](const Problem&) { return 0.0; })};
}

}  // namespace fractus::gating
