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
  std::vector<double> value;      // the true value, nearest double; NaN: there is none, and a form's may be NaN too
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
  std::size_t choices_flipped = 0;   // of them, those where the judged form's own choice is not the definition's
  double flip_moves = 0;             // the most by which an output moves where such a choice goes another way
  // Gradients with room for each choice, where the judged form's outputs do not tell which of them is its own.
  std::vector<std::optional<ExpectedTensor>> room;
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

// A gradient where choices are in doubt: `given` follows the branches that y shows, `either` covers both of each.
//
// A right kernel that computes den again in its backward, in another order, may land on the other side of the cut than
// its y did, with the y that it kept or with a new one; `either` holds g/den, y and the adjoint of den each as the hull
// of 0 and the quotient, so every such gradient lies in it, and one outside of it and of `given` is no right kernel's.
// What no longer shows is a fault confined to the gradients that a row in doubt reaches, and smaller than the hull.
inline Judgement judge(const ExpectedTensor& given, const ExpectedTensor& either, double radius_per_tolerance,
                       std::size_t i, double got) {
  const Judgement judgement = judge(given, radius_per_tolerance, i, got);
  if (judgement.verdict == Verdict::equal) return judgement;
  Judgement wider = judge(either, radius_per_tolerance, i, got);
  if (wider.verdict == Verdict::equal) wider.ratio = 0;  // how far apart the branches lie says nothing of the form
  return wider;
}

}  // namespace fractus::oracle
