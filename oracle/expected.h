// What a definition says of one call, element by element: the value and the tolerance that a correct kernel may use.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "contracts/array.h"

namespace fractus::oracle {

struct ExpectedTensor {
  std::string name;
  Shape shape;
  std::vector<double> value;      // the true value, nearest double
  std::vector<double> remainder;  // value + remainder is the true value; empty where the base was double itself
  std::vector<double> tolerance;  // infinity: no bound exists, the element is undecidable
};

struct Expected {
  DType dtype = DType::float32;
  double radius_per_tolerance = 0;      // |value + remainder - truth| <= tolerance * radius_per_tolerance
  std::vector<ExpectedTensor> outputs;  // in the contract's order
  std::vector<std::optional<ExpectedTensor>> gradients;  // by input; absent where none was asked for
  bool shared_edge = false;  // the call holds a row at which the form in production is known to have NaN gradients
  std::size_t choices_in_doubt = 0;  // rows whose branch the certified interval could not settle
};

enum class Verdict { equal, different, undecidable };

struct Judgement {
  Verdict verdict;
  double error;
  double ratio;  // error over tolerance; 0 where both are 0
};

// error = |got - truth|, known up to the radius: equal if it cannot exceed the tolerance, different if it must.
inline Judgement judge(const ExpectedTensor& expected, double radius_per_tolerance, std::size_t i, double got) {
  const double tolerance = expected.tolerance[i];
  if (!(tolerance < std::numeric_limits<double>::infinity())) return {Verdict::undecidable, 0, 0};
  double error = got - expected.value[i];
  if (!expected.remainder.empty()) error -= expected.remainder[i];
  error = std::fabs(error);
  if (!(error < std::numeric_limits<double>::infinity()))
    return {Verdict::different, error, std::numeric_limits<double>::infinity()};
  const double radius = tolerance * radius_per_tolerance;
  const double ratio = error == 0 ? 0 : error / tolerance;
  if (error + radius <= tolerance) return {Verdict::equal, error, ratio};
  if (error - radius > tolerance) return {Verdict::different, error, ratio};
  return {Verdict::undecidable, error, ratio};
}

}  // namespace fractus::oracle
