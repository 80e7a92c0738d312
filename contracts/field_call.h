// One call of a form over a finite field, and what came back (contracts/call.h has the same over floats).
//
// Tensors hold elements of GF(2^bits-1), and the form runs on the torch device `field`, its autograd included: what it
// computes there is its algebra, without any rounding.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contracts/array.h"
#include "contracts/contract.h"
#include "contracts/remark.h"

namespace fractus {

// Elements of the field, each below 2^bits-1; of a tensor of whole numbers (expert numbers, targets) those themselves.
struct Residues {
  std::string name;
  Shape shape;
  std::vector<std::uint64_t> values;

  bool operator==(const Residues&) const = default;
};

struct FieldCall {
  std::string kernel;
  std::string form;
  std::map<std::string, std::int64_t> settings;  // over the form's defaults
  int bits = 61;                                 // 31: the form sees float32 tensors; 61: float64
  std::vector<std::optional<Residues>> inputs;   // in the contract's order
  Scalars scalars;
  std::vector<std::optional<Residues>> cotangents;  // by output; none: no backward
  std::vector<bool> gradients;                      // by input: does it require a gradient
  bool traced = false;                              // FieldAnswer::trace is wanted
};

// An operation that ran, with the shapes of its results.
struct Step {
  std::string operation;
  std::vector<Shape> shapes;

  bool operator==(const Step&) const = default;
};

enum class FieldStatus {
  ok,
  not_algebraic,  // an operation that has no meaning over a field; `remarks` ends with it
  pole,           // a division by 0: the draw has to be drawn again
  failed,         // raised, crashed or timed out, or an output is no tensor of the field in its shape; see `message`
};

struct FieldAnswer {
  FieldStatus status = FieldStatus::ok;
  std::string message;
  std::vector<Residues> outputs;
  std::vector<std::optional<Residues>> gradients;  // by input; absent where none was asked for or none arrived
  std::vector<Remark> remarks;                     // those of one place once, with their count
  std::vector<Step> trace;
  double seconds = 0;
};

}  // namespace fractus
