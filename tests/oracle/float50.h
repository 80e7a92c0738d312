// The definition in floats of 50 digits, against what Companion says of the same call. Apart, since Boost is slow to
// compile: only float50.cpp sees it.
#pragma once

#include <string>

#include "oracle/linear_attention_expected.h"

namespace fractus::oracle::linear_attention {

struct Distance {
  double over_radius = 0;  // the largest |value + remainder - truth| over its radius
  std::string where;       // of an element outside its radius; empty where there is none
};

// Over all elements of group 0 that have a bound. The call holds no row in doubt.
Distance distance_to_truth(const Question& question, const Expected& expected);

// The largest relative difference between the adjoint in 50 digits and central differences of sum(cotangent * output).
double adjoint_against_differences(const Question& question);

}  // namespace fractus::oracle::linear_attention
