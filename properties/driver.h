// A driver is what the harness knows of one kernel beyond its contract: how to fill inputs, and what the definition
// says. Plain functions over plain data; properties are written against this and know no kernel by name.
#pragma once

#include <rapidcheck.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "contracts/contract.h"
#include "oracle/expected.h"
#include "properties/case.h"

namespace fractus {

// The values of one call.
struct Problem {
  std::vector<std::optional<Array>> inputs;      // in the contract's order
  std::vector<std::optional<Array>> cotangents;  // by output
  // The chance that such a draw does not tell a wrong polynomial from the right one, where the fill knows it.
  std::optional<double> escape;
};

// The values of those tensors that every correct order computes without rounding.
struct Exactness {
  std::vector<std::optional<std::vector<double>>> outputs, gradients;
  double fullness = 0;  // largest intermediate over what the significand holds
};

struct Driver {
  const Contract* contract = nullptr;

  std::vector<std::string> fills;               // every distribution that `fill` knows, ordinary ones first
  std::vector<std::string> smooth_fills;        // those that the rounding and gradient properties draw from
  std::vector<std::string> aligned_fills;       // those whose roundings all point one way: they use much of any bound
  std::string exact_fill, exact_backward_fill;  // lattices: outputs only, and gradients too
  std::vector<std::string> wide_fills;          // lattices in which one tensor fills the significand
  std::string choice_fill;                      // aims at the kernel's discrete choices; empty where it has none
  std::string sequence_symbol;                  // the extent that a carry splits, "T"; empty where nothing is carried
  std::vector<std::pair<std::string, std::string>> carry;  // output -> input that continues it: S -> S0, z -> z0
  std::vector<std::string> along_sequence;                 // tensors that are split along it: q, k, v, y
  Dims live;                                               // the training run's shape

  std::vector<Dims> corners;        // several unusual extents at once; each is tried once, with all gradients
  std::vector<Dims> memory_shapes;  // cells of the memory property, ordinary shapes but for the extent that grows

  // The extents that a plan must hold: ragged tails of the given block, 1, primes, large.
  std::function<std::vector<Dims>(std::int64_t block)> shapes;
  std::function<rc::Gen<Dims>(std::int64_t block)> random_shape;

  // Throws std::invalid_argument for an unknown fill or extents that do not fit.
  std::function<Problem(const Case&)> fill;
  // `answered` are the judged form's outputs; they settle choices that the certified interval cannot.
  std::function<oracle::Expected(const Problem&, DType, const std::vector<Array>* answered, int threads)> expected;
  std::function<Exactness(const Problem&, DType)> exactness;
};

const std::vector<const Driver*>& drivers();
const Driver* find_driver(std::string_view kernel);

}  // namespace fractus
