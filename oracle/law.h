// The law of a draw, row by row.
#pragma once

#include <vector>

namespace fractus::oracle {

// Below this a probability is none: a right kernel's rounding may flush it, and no run draws it.
inline constexpr double least_probability = 0x1p-100;

struct Law {
  std::vector<double> probability;  // (N,V), row by row
  // (N): a right kernel of the dtype draws each token of the row with a probability within exp(+-slack) of this one,
  // wherever it is at least least_probability; infinity where no bound exists. What the drawing itself rounds (uniform
  // numbers of 24 bits, a cumulative sum) is the sampler's own and not in it.
  std::vector<double> slack;
};

}  // namespace fractus::oracle
