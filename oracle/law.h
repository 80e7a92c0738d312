// The law of a draw, row by row.
#pragma once

#include <vector>

#include "contracts/array.h"

namespace fractus::oracle {

// A right kernel of the dtype draws the token i of row n with a probability within exp(+-slack_n) of probability_ni,
// wherever that is at least 2^-100.
struct Law {
  std::vector<double> probability;  // (N,V), row by row
  std::vector<double> slack;        // (N)
};

// softmax(h W^T / temperature) for h (N,d), W (V,d).
Law softmax_law(DType dtype, const Array& h, const Array& W, double temperature);

}  // namespace fractus::oracle
