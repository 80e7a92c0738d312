#include "contracts/matmul.h"

namespace fractus::matmul {

const Contract& contract() {
  static const Contract c{
      .kernel = "matmul",
      .version = 1,
      .inputs = {{"a", {"G", "M", "K"}}, {"b", {"G", "K", "N"}}},
      .outputs = {{"c", {"G", "M", "N"}}},
      .dim_symbols = {"G", "M", "K", "N"},
      .only_identity = true,
  };
  return c;
}

}  // namespace fractus::matmul
