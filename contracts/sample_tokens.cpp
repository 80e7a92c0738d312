#include "contracts/sample_tokens.h"

namespace fractus::sample_tokens {

const Contract& contract() {
  static const Contract c{
      .kernel = "sample_tokens",
      .version = 1,
      .inputs = {{.name = "h", .dims = {"N", "d"}, .differentiable = false},
                 {.name = "W", .dims = {"V", "d"}, .differentiable = false}},
      .scalars = {{.name = "ce_chunk"}, {.name = "temperature", .whole = false}, {.name = "seed"}},
      .outputs = {{.name = "tokens", .dims = {"N"}, .differentiable = false, .dtype = DType::int64}},
      .dim_symbols = {"N", "d", "V", "ce_chunk"},
      .admitted = {"chunked_sampler"},
      .waivers = {"unchecked-input", "memory-growth"},
  };
  return c;
}

}  // namespace fractus::sample_tokens
