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
#include "oracle/law.h"
#include "oracle/rational.h"
#include "properties/case.h"

namespace fractus {

// The values of one call.
struct Problem {
  std::vector<std::optional<Array>> inputs;  // in the contract's order
  Scalars scalars;
  std::vector<std::optional<Array>> cotangents;  // by output
  // The chance that such a draw does not tell a wrong polynomial from the right one, where the fill knows it.
  std::optional<double> escape;
};

// The values of those tensors that every correct order computes without rounding.
struct Exactness {
  std::vector<std::optional<std::vector<double>>> outputs, gradients;
  double fullness = 0;  // largest intermediate over what the significand holds
};

// What the definition has to know of the form that is judged by it.
struct Judged {
  const std::vector<Array>* outputs = nullptr;  // they settle choices that the certified interval cannot
  std::int64_t add_depth = 0;                   // as declared (Answer::add_depth)
  int threads = 1;
};

// One way to leave a contract's domain. A form has to refuse it by an exception, or may do what stands here beside.
struct Violation {
  std::string name;
  std::string text;  // what is wrong with the input: "a target of V"
  std::function<Problem(Problem, std::uint64_t seed)> spoiled;
  std::function<Problem(Problem)> same_as;  // of the spoiled one: a right answer is that of this problem; may be empty
  // The definition's answer to that problem, in the shapes of the spoiled one; empty where they are the same.
  std::function<oracle::Expected(oracle::Expected, const Problem& spoiled)> restored;
  std::string allowed;      // what a form does that answers so: "left out of sum and mean"
  bool may_be_nan = false;  // a result that is NaN throughout hides nothing
};

// Violation::spoiled: one scalar becomes what `value` makes of the sound problem.
std::function<Problem(Problem, std::uint64_t seed)> spoiled_scalar(std::string name,
                                                                   std::function<double(const Problem&)> value);

// Memory beside inputs and outputs that may not grow with one extent: from `few` of it to as many as a case has by no
// more than `allowance` elements.
struct Flat {
  std::string symbol, other;  // what may not be held is their product: N and V
  std::int64_t few = 1;
  Dims dims;  // what is planned
  std::function<std::int64_t(const Dims&)> allowance;
  std::string text;  // of the bound: "one chunk's logits"
};

// A call whose draws are put to the test of their law again and again, under other seeds.
struct Draws {
  std::string variant;  // of the property law
  std::string fill;
  Dims dims;
  bool each_dtype = false;             // the law is hardly a matter of dtype: some are enough
  Layout layout = Layout::contiguous;  // of all inputs
};

// What a wrong form may compute in the definition's place, in words that follow "as if": "z0 were absent".
struct Supposition {
  std::string text;
  std::function<oracle::FieldExpected(const FieldCall&)> over_field;
};

struct Driver {
  const Contract* contract = nullptr;

  std::vector<std::string> fills;               // every distribution that `fill` knows, ordinary ones first
  std::vector<std::string> smooth_fills;        // those that the rounding and gradient properties draw from
  std::vector<std::string> aligned_fills;       // those whose roundings all point one way: they use much of any bound
  std::string exact_fill, exact_backward_fill;  // lattices: outputs only, and gradients too
  std::vector<std::string> wide_fills;          // lattices in which one tensor fills the significand
  std::string choice_fill;                      // aims at the kernel's discrete choices; empty where it has none
  // The outputs themselves show each choice, and the order of what was chosen, even where there is no doubt: what comes
  // behind is that of the answer's own, gradients included.
  bool choices_shown = false;
  // The outputs settle those that are in doubt for what comes behind, gradients included, without showing them.
  bool choices_settled = false;
  bool depth_declared = false;  // the bounds hang on Answer::add_depth
  std::string batch_symbol;     // the extent whose entries know nothing of each other; may be empty
  std::string sequence_symbol;  // the extent that a carry splits, "T"; empty where nothing is carried
  std::string growing_symbol;   // the extent that changes from call to call in a training run
  std::string size_symbol;      // the extent that the bounds grow with; empty: none
  // Whether known-good forms are a measure of others at this case; empty: always. A sum that they take as a tree and
  // others one by one, and that most of the bound is of, is none.
  std::function<bool(const Case&)> comparable;
  std::vector<std::string> may_be_empty;                   // extents that may be 0
  std::vector<std::pair<std::string, std::string>> carry;  // output -> input that continues it: S -> S0, z -> z0
  std::vector<std::string> along_sequence;                 // tensors that are split along it: q, k, v, y
  std::pair<std::string, std::string> tied;                // an input that may be rows of another one; or none
  std::vector<std::string> tied_fills;                     // those whose rows of the one are in the domain of the other

  Dims live;        // the training run's shape
  Dims live_slice;  // a little of it: its widths, for which a form may have a path of its own, as a small case
  // Its length and widths, where a kernel takes the path that it was written for, with `groups` groups.
  std::function<Dims(std::int64_t groups)> live_groups;
  Dims live_float64;  // what is judged of it in float64, whose base has no vector instructions
  Dims for_threads;   // so much of it that a parallel loop over elements is split: at 32768 (at::internal::GRAIN_SIZE)

  std::vector<Dims> corners;        // several unusual extents at once; each is tried once, with all gradients
  std::vector<Dims> memory_shapes;  // cells of the memory property, ordinary shapes but for the extent that grows
  std::optional<Flat> flat;         // what the contract itself says of memory
  std::vector<Violation> violations;
  // The largest block of a form whose borders the shapes can surround; longer ones would take minutes.
  std::int64_t longest_block = 256;
  std::int64_t longest_wrong_block = 256;  // of a known-wrong form: more blocks fill the shapes where they are shorter
  std::vector<Dims> recorded_with{{}};     // scalars that a golden record leaves open

  // The extents that a plan must hold: ragged tails of the given block, 1, primes, large.
  std::function<std::vector<Dims>(std::int64_t block)> shapes;
  // Those of them that the wide lattices, and the exact fill with a backward, are made for.
  std::function<std::vector<Dims>(std::int64_t block)> wide_shapes, exact_backward_shapes;
  std::function<rc::Gen<Dims>(std::int64_t block)> random_shape;
  // The classes of a case that are the kernel's own, and all that a run must hold. May be empty.
  std::function<std::vector<std::string>(const Case&, std::int64_t block)> classes;
  std::function<std::vector<std::string>(std::int64_t block)> required_classes;

  // Throws std::invalid_argument for an unknown fill or extents that do not fit.
  std::function<Problem(const Case&)> fill;
  // Empty for a kernel whose result is a draw.
  std::function<oracle::Expected(const Problem&, DType, const Judged&)> expected;
  std::function<Exactness(const Problem&, DType)> exactness;
  // Of a draw: the law of each row, and by how much a right kernel's own roundings may move it.
  std::function<oracle::Law(const Problem&, DType)> law;
  // The definition over a finite field, and its degrees in inputs and cotangents together; empty: it is not rational.
  // Throws std::domain_error at a pole.
  std::function<oracle::FieldExpected(const FieldCall&)> over_field;
  std::function<oracle::Degrees(const FieldCall&)> degrees;
  std::vector<Supposition> suppositions;  // of the kernel's own constants
  // Extents at which its algebra is compared: every border of the block, all else small.
  std::function<std::vector<Dims>(std::int64_t block)> field_shapes;
  std::string seed_scalar;   // what the draws follow from
  double seeds = 0;          // it is a whole number below this
  std::string chunk_symbol;  // so many rows are worked on at a time; all where it is 0
  std::function<std::vector<Draws>(std::int64_t block, bool live)> draws;
};

const std::vector<const Driver*>& drivers();           // of the kernels that are judged in full
const std::vector<const Driver*>& identity_drivers();  // of those that `identity` alone judges
const Driver* find_driver(std::string_view kernel);    // of either kind; nullptr where there is none

}  // namespace fractus
