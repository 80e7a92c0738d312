#include "contracts/cross_entropy.h"

namespace fractus::cross_entropy {

const Contract& contract() {
  static const Contract c{
      .kernel = "cross_entropy",
      .version = 1,
      .inputs = {{"h", {"N", "d"}},
                 {"W", {"V", "d"}},
                 {.name = "targets", .dims = {"N"}, .differentiable = false, .dtype = DType::int64}},
      .scalars = {{.name = "ce_chunk"}},
      .outputs = {{"loss", {}}},
      .dim_symbols = {"N", "d", "V", "ce_chunk"},
      .admitted = {"chunked_ce", "chunked_ce_online"},
      .waivers = {"unchecked-input", "single-backward", "memory-growth"},
  };
  return c;
}

}  // namespace fractus::cross_entropy
