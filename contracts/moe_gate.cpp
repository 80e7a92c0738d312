#include "contracts/moe_gate.h"

namespace fractus::moe_gate {

const Contract& contract() {
  static const Contract c{
      .kernel = "moe_gate",
      .version = 1,
      .inputs = {{"phases", {"B", "T", "P"}}, {.name = "expert_phases", .dims = {"E"}, .differentiable = false}},
      .scalars = {{.name = "kappa", .whole = false}, {.name = "temperature", .whole = false}, {.name = "top_k"}},
      .outputs = {{"gates", {"B", "T", "E"}},
                  {.name = "topk_idx", .dims = {"B", "T", "top_k"}, .differentiable = false, .dtype = DType::int64},
                  {"topk_weights", {"B", "T", "top_k"}},
                  {"lb", {}}},
      .dim_symbols = {"B", "T", "P", "E", "top_k"},
      .admitted = {"gate_cosine", "gate_rotated"},
      .waivers = {"shared-edges", "unchecked-input", "single-backward", "memory-growth"},
  };
  return c;
}

}  // namespace fractus::moe_gate
