// The oscillators in floats of 50 digits, against what Companion says of the same call. Apart, since Boost is slow to
// compile: only kuramoto_float50.cpp sees it.
#pragma once

#include <string>

#include "oracle/kuramoto_expected.h"

namespace fractus::oracle::kuramoto {

struct Distance {
  double over_radius = 0;  // the largest |value + remainder - truth| over its radius
  std::string where;       // of an element outside its radius; empty where there is none
  double bounded = 0;      // elements that have a bound
};

// theta in 50 digits, as the nearest doubles.
Array true_theta(const Question& question);

// Over theta and all gradients, expected on the branch of the true theta.
Distance distance_to_truth(const Question& question, const Expected& expected);

// The largest relative difference between the tape's gradients in 50 digits and central differences.
double gradients_against_differences(const Question& question);

}  // namespace fractus::oracle::kuramoto
