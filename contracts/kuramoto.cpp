#include "contracts/kuramoto.h"

namespace fractus::kuramoto {

const Contract& contract() {
  static const Contract c{
      .kernel = "kuramoto",
      .version = 1,
      .inputs = {{"hidden", {"B", "T", "d"}}, {"omega", {"P"}}, {"coupling_u", {"P", "r"}}, {"coupling_lambda", {"r"}}},
      .scalars = {{.name = "n_steps"}, {.name = "dt", .whole = false}, {.name = "damping", .whole = false}},
      .outputs = {{"theta", {"B", "T", "P"}}},
      .dim_symbols = {"B", "T", "d", "P", "r", "n_steps"},
      .admitted = {"kuramoto_fused"},
      .waivers = {"unchecked-input", "single-backward", "memory-growth"},
  };
  return c;
}

}  // namespace fractus::kuramoto
