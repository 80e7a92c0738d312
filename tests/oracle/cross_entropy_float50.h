// The definition of cross entropy in floats of 50 digits, against what Companion says of the same call. Apart, since
// Boost is slow to compile: only cross_entropy_float50.cpp sees it.
#pragma once

#include <string>
#include <vector>

#include "oracle/cross_entropy_expected.h"

namespace fractus::oracle::cross_entropy {

struct Distance {
  double over_radius = 0;  // the largest |value + remainder - truth| over its radius
  std::string where;       // of an element outside its radius; empty where there is none
};

// Over all elements that have a bound.
Distance distance_to_truth(const Question& question, const Expected& expected);

// The largest relative difference between the adjoint in 50 digits and central differences of g * loss.
double adjoint_against_differences(const Question& question);

// softmax(h W^T / temperature) in 50 digits, row by row.
std::vector<double> true_law(const Array& h, const Array& W, double temperature);

}  // namespace fractus::oracle::cross_entropy
