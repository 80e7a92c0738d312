// The driver of cross entropy: its shapes, its fills, its definition.
#include "contracts/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "oracle/cross_entropy_expected.h"
#include "properties/cross_entropy_fill.h"
#include "properties/driver.h"
#include "properties/vocabulary.h"

namespace fractus::cross_entropy {
namespace {

using vocabulary::dims, vocabulary::with_nan;

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// The mean is exact where N is a power of two.
std::vector<Dims> exact_shapes(std::int64_t block) {
  std::vector<Dims> list = vocabulary::shapes(block);
  for (Dims& one : list)
    while (!is_power_of_two(one.at("N"))) --one.at("N");
  return list;
}

std::vector<std::string> classes(const Case& c, std::int64_t block) {
  std::vector<std::string> all = vocabulary::classes(c, block);
  if (c.variant == "tied") all.emplace_back("h of W's rows");
  return all;
}

Problem with_target(Problem problem, std::uint64_t seed, double target) {
  std::vector<double>& targets = problem.inputs[2]->values;
  targets[seed % targets.size()] = target;
  return problem;
}

// Rows [0, count) of h and targets.
Problem first_rows(Problem problem, std::int64_t count) {
  Array &h = *problem.inputs[0], &targets = *problem.inputs[2];
  h.shape[0] = targets.shape[0] = count;
  h.values.resize(static_cast<std::size_t>(element_count(h.shape)));
  targets.values.resize(static_cast<std::size_t>(count));
  return problem;
}

// One row more or three, whose target is the one that torch leaves out: so many that a chunk may hold no other.
Problem with_ignored_rows(Problem problem, std::uint64_t seed) {
  Array &h = *problem.inputs[0], &targets = *problem.inputs[2];
  const auto N = static_cast<std::uint64_t>(h.shape[0]);
  const auto at = static_cast<std::ptrdiff_t>(seed / 2 % (N + 1)), d = static_cast<std::ptrdiff_t>(h.shape[1]);
  const std::vector<double> first(h.values.begin(), h.values.begin() + d);
  for (int rows = seed % 2 == 0 ? 1 : 3; rows > 0; --rows) {
    h.values.insert(h.values.begin() + at * d, first.begin(), first.end());
    targets.values.insert(targets.values.begin() + at, ignored_target);
  }
  h.shape[0] = targets.shape[0] = static_cast<std::int64_t>(targets.values.size());
  return problem;
}

bool is_ignored(const Problem& problem, std::size_t row) { return problem.inputs[2]->values[row] == ignored_target; }

Problem without_ignored_rows(Problem problem) {
  Array &h = *problem.inputs[0], &targets = *problem.inputs[2];
  const auto d = static_cast<std::ptrdiff_t>(h.shape[1]);
  for (std::size_t n = targets.values.size(); n-- > 0;)
    if (is_ignored(problem, n)) {
      const auto row = static_cast<std::ptrdiff_t>(n);
      h.values.erase(h.values.begin() + row * d, h.values.begin() + (row + 1) * d);
      targets.values.erase(targets.values.begin() + row);
    }
  h.shape[0] = targets.shape[0] = static_cast<std::int64_t>(targets.values.size());
  return problem;
}

// Nothing flows back to a row that is left out.
oracle::Expected with_rows_of_zeros(oracle::Expected expected, const Problem& spoiled) {
  if (expected.gradients.empty() || !expected.gradients[0]) return expected;
  oracle::ExpectedTensor& dh = *expected.gradients[0];
  const auto d = static_cast<std::size_t>(dh.shape[1]);
  for (std::size_t n = 0; n < spoiled.inputs[2]->values.size(); ++n)
    if (is_ignored(spoiled, n))
      for (std::vector<double>* part : {&dh.value, &dh.remainder, &dh.tolerance})
        if (part != &dh.remainder || !part->empty())
          part->insert(part->begin() + static_cast<std::ptrdiff_t>(n * d), d, 0.0);
  dh.shape[0] = spoiled.inputs[0]->shape[0];
  return expected;
}

std::vector<Violation> violations() {
  const auto target = [](double (*value)(const Problem&)) {
    return [value](Problem problem, std::uint64_t seed) {
      const double given = value(problem);
      return with_target(std::move(problem), seed, given);
    };
  };
  const auto vocabulary = [](const Problem& problem) { return static_cast<double>(problem.inputs[1]->shape[0]); };
  return {
      {.name = "target_V", .text = "a target of V", .spoiled = target(vocabulary)},
      {.name = "target_minus_1", .text = "a target of -1", .spoiled = target([](const Problem&) { return -1.0; })},
      {.name = "target_minus_101", .text = "a target of -101", .spoiled = target([](const Problem&) {
                                                                 return -101.0;
                                                               })},
      {.name = "target_far_below", .text = "a target of -2^40", .spoiled = target([](const Problem&) {
                                                                  return -0x1p40;
                                                                })},
      {.name = "target_huge", .text = "a target of 2^40", .spoiled = target([](const Problem&) { return 0x1p40; })},
      {.name = "target_ignored",
       .text = "a target of -100",
       .spoiled = with_ignored_rows,
       .same_as = without_ignored_rows,
       .restored = with_rows_of_zeros,
       .allowed = "left out of sum and mean, as the contract allows"},
      {.name = "no_rows",
       .text = "N = 0",
       .spoiled = [](Problem problem, std::uint64_t) { return first_rows(std::move(problem), 0); }},
      {.name = "nan_in_h",
       .text = "a NaN in h",
       .spoiled = [](Problem problem, std::uint64_t seed) { return with_nan(std::move(problem), 0, seed); },
       .may_be_nan = true},
      {.name = "nan_in_W",
       .text = "a NaN in W",
       .spoiled = [](Problem problem, std::uint64_t seed) { return with_nan(std::move(problem), 1, seed); },
       .may_be_nan = true},
      {.name = "negative_chunk",
       .text = "a ce_chunk of -1",
       .spoiled = spoiled_scalar("ce_chunk", [](const Problem&) { return -1.0; }),
       .same_as =
           [](Problem problem) {
             problem.scalars["ce_chunk"] = 0;
             return problem;
           },
       .allowed = "taken for 0"},
  };
}

oracle::cross_entropy::Question question_of(const Problem& problem, DType dtype) {
  return {.dtype = dtype, .borrowed = &problem.inputs, .cotangent = problem.cotangents.at(0)};
}

oracle::Expected expected(const Problem& problem, DType dtype, const Judged& judged) {
  oracle::cross_entropy::Question question = question_of(problem, dtype);
  question.add_depth = judged.add_depth;
  question.threads = judged.threads;
  return oracle::cross_entropy::expected(question);
}

Exactness exactness(const Problem& problem, DType dtype) {
  const auto exact = oracle::cross_entropy::exactness(question_of(problem, dtype));
  return {exact.outputs, exact.gradients, exact.fullness};
}

}  // namespace

const Driver& driver() {
  static const Driver one{
      .contract = &contract(),
      .fills = fill_names(),
      .smooth_fills = smooth_fill_names(),
      .aligned_fills = {"equal"},
      .exact_fill = "one_level",
      .exact_backward_fill = "two_level",
      .wide_fills = wide_fill_names(),
      .depth_declared = true,
      .growing_symbol = "N",
      .size_symbol = "V",
      // The losses of many chunks, added one by one where a mean over all rows is a tree.
      .comparable =
          [](const Case& c) {
            const std::int64_t chunk = c.dims.at("ce_chunk");
            return chunk == 0 || c.dims.at("N") <= 32 * chunk;
          },
      .tied = {"h", "W"},
      .tied_fills = {"ordinary", "duplicated", "end_targets", "small", "same_target", "sparse"},
      .live = vocabulary::training_run(),
      .live_slice = dims(4, 1280, 67, 3),
      .live_groups = [](std::int64_t groups) { return dims(2 * groups, 8, 50257, 2); },
      .live_float64 = dims(2, 8, 50257, 1),
      .for_threads = dims(9, 64, 4001, 4),
      .corners = {dims(33, 65, 1031, 32), dims(130, 4, 300, 64), dims(2, 1280, 5003, 1), dims(70, 16, 2049, 69)},
      .memory_shapes = {dims(1024, 4, 40, 64), dims(64, 16, 2000, 16), dims(256, 16, 2000, 16), dims(16, 16, 8000, 16),
                        dims(33, 16, 2000, 0), dims(50, 300, 900, 16)},
      .flat = Flat{.symbol = "N",
                   .other = "V",
                   .few = 64,
                   .dims = dims(1024, 8, 10000, 16),
                   .allowance = [](const Dims& dims) { return vocabulary::chunk_elements(dims, 1); },
                   .text = "one chunk's logits, h and 16 numbers a row"},
      .violations = violations(),
      .longest_block = 8192,
      .longest_wrong_block = 64,
      .recorded_with = {{{"ce_chunk", 0}}, {{"ce_chunk", 1}}, {{"ce_chunk", 5}}, {{"ce_chunk", 64}}},
      .shapes = vocabulary::shapes,
      .wide_shapes = exact_shapes,
      .exact_backward_shapes = exact_shapes,
      .random_shape = vocabulary::random_shape,
      .classes = classes,
      .required_classes = vocabulary::required_classes,
      .fill = fill,
      .expected = expected,
      .exactness = exactness,
  };
  return one;
}

}  // namespace fractus::cross_entropy
