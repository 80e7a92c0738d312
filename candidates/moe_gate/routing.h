// What every candidate with a gate inside checks and computes alike.
#pragma once

#include <string>

#include "contracts/form.h"

namespace fractus::moe_gate {

// Throw std::invalid_argument, "KERNEL: ...", that names the argument, what was wanted and what was got. The first one:
// a top_k outside of [1, experts], a temperature that is not above 0, a kappa / temperature beyond the domain.
void check_routing(const std::string& kernel, const Scalars& scalars, std::int64_t experts);
// A number that is not finite, with the row that it stands in, of so many; `row` is what rows are called.
void require_finite(const std::string& kernel, const std::string& name, const at::Tensor& tensor, std::int64_t rows,
                    const char* row);

// x over its sum along the last extent, equal shares where that is at or below the cut.
at::Tensor shares(const at::Tensor& x);

// E sum_e (mean gates_e - 1/E)^2 over the tokens of `gates` (B,T,E).
at::Tensor load_balance(const at::Tensor& gates);

}  // namespace fractus::moe_gate
