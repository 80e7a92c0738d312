#include "contracts/linear_attention.h"

namespace fractus::linear_attention {

const Contract& contract() {
  static const Contract c{
      .kernel = "linear_attention",
      .version = 1,
      .inputs = {{"q", {"G", "T", "D"}},
                 {"k", {"G", "T", "D"}},
                 {"v", {"G", "T", "D"}},
                 {.name = "S0", .dims = {"G", "D", "D"}, .optional = true},
                 {.name = "z0", .dims = {"G", "D"}, .optional = true}},
      .outputs = {{"y", {"G", "T", "D"}}, {"S", {"G", "D", "D"}}, {"z", {"G", "D"}}},
      .dim_symbols = {"G", "T", "D"},
      .admitted = {"cumsum", "chunked", "chunked_tail"},
      .waivers = {"shared-edges", "single-backward", "memory-growth"},
  };
  return c;
}

}  // namespace fractus::linear_attention
