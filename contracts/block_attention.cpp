#include "contracts/block_attention.h"

namespace fractus::block_attention {

const Contract& contract() {
  static const Contract c{
      .kernel = "block_attention",
      .version = 1,
      .inputs = {{"q", {"B", "L", "T", "H", "D"}},
                 {"k", {"B", "L", "T", "H", "D"}},
                 {"v", {"B", "T", "H", "D"}},
                 {"mix", {"L"}},
                 {.name = "S0", .dims = {"B", "H", "D", "D"}, .optional = true},
                 {.name = "z0", .dims = {"B", "H", "D"}, .optional = true}},
      .outputs = {{"y", {"B", "T", "H", "D"}}, {"S", {"B", "H", "D", "D"}}, {"z", {"B", "H", "D"}}},
      .dim_symbols = {"B", "L", "T", "H", "D"},
      .only_identity = true,
  };
  return c;
}

}  // namespace fractus::block_attention
