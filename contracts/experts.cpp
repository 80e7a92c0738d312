#include "contracts/experts.h"

namespace fractus::experts {

const Contract& contract() {
  static const Contract c{
      .kernel = "experts",
      .version = 1,
      .inputs = {{"h", {"N", "d"}},
                 {"weights", {"N", "K"}},
                 {.name = "experts", .dims = {"N", "K"}, .differentiable = false, .dtype = DType::int64},
                 {"W1", {"E", "d", "f"}},
                 {"b1", {"E", "f"}},
                 {"W2", {"E", "f", "d"}},
                 {"b2", {"E", "d"}}},
      .outputs = {{"out", {"N", "d"}}},
      .dim_symbols = {"N", "K", "E", "d", "f"},
      .only_identity = true,
  };
  return c;
}

}  // namespace fractus::experts
