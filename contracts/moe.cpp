#include "contracts/moe.h"

namespace fractus::moe {

std::vector<TensorSpec> expert_tensors(const std::string& prefix) {
  std::vector<TensorSpec> specs{
      {.name = "w1", .dims = {"E", "d", "F"}, .only_without = "r"},
      {.name = "w2", .dims = {"E", "F", "d"}, .only_without = "r"},
      {.name = "U1", .dims = {"E", "F", "r"}, .only_with = "r"},
      {.name = "V1", .dims = {"E", "d", "r"}, .only_with = "r"},
      {.name = "U2", .dims = {"E", "d", "r"}, .only_with = "r"},
      {.name = "V2", .dims = {"E", "F", "r"}, .only_with = "r"},
      {.name = "scale1", .dims = {"E", "1", "1"}, .only_with = "r"},
      {.name = "scale2", .dims = {"E", "1", "1"}, .only_with = "r"},
      {.name = "b1", .dims = {"E", "F"}},
      {.name = "b2", .dims = {"E", "d"}},
  };
  for (TensorSpec& spec : specs) spec.name = prefix + spec.name, spec.group = "params";
  return specs;
}

const Contract& contract() {
  static const Contract c = [] {
    Contract made{
        .kernel = "moe",
        .version = 1,
        .inputs = {{"h", {"B", "T", "d"}},
                   {"phases", {"B", "T", "P"}},
                   {.name = "expert_phases", .dims = {"E"}, .differentiable = false, .group = "params"}},
        .scalars = {{.name = "top_k"}, {.name = "kappa", .whole = false}, {.name = "temperature", .whole = false}},
        .outputs = {{"out", {"B", "T", "d"}}, {"lb", {}}},
        .dim_symbols = {"B", "T", "d", "P", "E", "F", "r", "top_k"},
        .admitted = {"moe_dense_gather", "moe_gather_first"},
        .waivers = {"unchecked-input", "single-backward", "memory-growth"},
    };
    for (TensorSpec& spec : expert_tensors("")) made.inputs.push_back(std::move(spec));
    return made;
  }();
  return c;
}

}  // namespace fractus::moe
