// The driver of the sampler: its shapes, its fills, its law.
#include "contracts/sample_tokens.h"

#include <algorithm>
#include <limits>

#include "oracle/sample_tokens.h"
#include "properties/driver.h"
#include "properties/sample_tokens_fill.h"
#include "properties/vocabulary.h"

namespace fractus::sample_tokens {
namespace {

using vocabulary::dims, vocabulary::training_run, vocabulary::with_nan;

// What is drawn many times. Rows by the hundred make a draw cheap; rows of one law and rows that all differ take turns.
std::vector<Draws> draws(std::int64_t block, bool live) {
  const std::int64_t one_block = std::min<std::int64_t>(block, 64);
  std::vector<Draws> list{
      // By the token: more rows than a chunk holds, the last of them short.
      {"small", "one_law", dims(300, 4, 13, 64), true},
      {"small", "ordinary", dims(93, 4, 31, 20), true},
      {"small", "ordinary", dims(7, 2, 5, 3)},  // few enough rows that each is looked at by itself
      {"small", "one_peaked", dims(300, 4, 24, 90)},
      {"small", "rare_ends", dims(300, 4, 16, 128)},
      {"small", "shifted", dims(100, 4, 11, 40)},
      {"small", "cold", dims(93, 3, 9, 20)},
      {"small", "hot", dims(93, 3, 40, 20)},
      {"small", "temperatures", dims(64, 3, 9, 0)},
      {"small", "peaked", dims(20, 4, 17, 1)},
      {"small", "uniform", dims(200, 3, one_block, 50)},
      {"small", "masked", dims(100, 4, 24, 30)},
      {"small", "spread", dims(64, 4, 12, 10)},
      {"small", "ends", dims(130, 2, one_block + 1, 1000)},
      {"small", "one_law", dims(1, 3, 4, 0)},
      {.variant = "small", .fill = "ordinary", .dims = dims(48, 5, 21, 16), .layout = Layout::column_major},
      {.variant = "small", .fill = "ordinary", .dims = dims(50, 6, 19, 12), .layout = Layout::sliced},
      {"pairs", "one_law", dims(150, 4, 31, 16), true},
      {"pairs", "ordinary", dims(150, 4, 31, 16), true},
      {"pairs", "ordinary", dims(96, 4, 23, 0)},
      {"pairs", "peaked", dims(24, 4, 60, 1)},
      {"pairs", "one_law", dims(12, 3, 19, 5)},
      {"seeds", "one_law", dims(128, 4, 101, 24), true},
      {"seeds", "ordinary", dims(128, 4, 257, 40)},
      {"large", "ordinary", dims(512, 8, 1009, 100), true},
      {"large", "one_law", dims(512, 8, 1009, 100)},
      {"large", "ends", dims(256, 4, 1009, 48)},
      {"large", "temperatures", dims(256, 70, 1031, 0)},
      {"large", "masked", dims(256, 8, 2049, 60)},
      {"large", "one_peaked", dims(128, 8, 5003, 48)},
      {"large", "uniform", dims(128, 2, 20011, 50)},  // more tokens than a uniform number of few bits can tell apart
  };
  if (live)
    list.insert(list.end(), {{"large", "one_law", dims(64, 8, 50257, 24)},
                             {"large", "ends", dims(40, 8, 50257, 24)},
                             {"large", "ordinary", training_run()}});
  return list;
}

std::vector<std::string> required_classes(std::int64_t block) {
  std::vector<std::string> all = vocabulary::required_classes(block);
  all.emplace_back("N = 0");
  return all;
}

// The contract says nothing of a temperature that is none, of NaN, of a negative ce_chunk and of seeds outside of the
// range; forms in wide use compute with all of them. What is asked is that the tokens are tokens: any of the vocabulary
// in a row that has no law, and what may be drawn in every other.
std::vector<Violation> violations() {
  const auto no_law = [](Problem problem) {
    std::fill(problem.inputs[0]->values.begin(), problem.inputs[0]->values.end(), 0.0);
    problem.scalars["temperature"] = 1;
    return problem;
  };
  const auto scalar = [](const std::string& name, double value) {
    return spoiled_scalar(name, [value](const Problem&) { return value; });
  };
  const auto as_it_is = [](Problem problem) { return problem; };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  return {
      {.name = "temperature_0", .text = "a temperature of 0", .spoiled = scalar("temperature", 0), .same_as = no_law},
      {.name = "temperature_negative",
       .text = "a temperature of -0.9",
       .spoiled = scalar("temperature", -0.9),
       .same_as = no_law},
      {.name = "temperature_nan",
       .text = "a temperature of NaN",
       .spoiled = scalar("temperature", nan),
       .same_as = no_law},
      {.name = "nan_in_h",
       .text = "a NaN in h",
       .spoiled = [](Problem problem, std::uint64_t seed) { return with_nan(std::move(problem), 0, seed); },
       .same_as =
           [](Problem problem) {
             Array& h = *problem.inputs[0];
             const auto width = h.shape[1];
             for (auto row = h.values.begin(); row != h.values.end(); row += width)
               if (std::any_of(row, row + width, [](double x) { return x != x; })) std::fill(row, row + width, 0.0);
             return problem;
           }},
      {.name = "negative_chunk", .text = "a ce_chunk of -1", .spoiled = scalar("ce_chunk", -1), .same_as = as_it_is},
      {.name = "negative_seed", .text = "a seed of -1", .spoiled = scalar("seed", -1), .same_as = as_it_is},
      {.name = "seed_2_32", .text = "a seed of 2^32", .spoiled = scalar("seed", seeds), .same_as = as_it_is},
  };
}

oracle::Law law(const Problem& problem, DType dtype) {
  const Array &h = *problem.inputs[0], &W = *problem.inputs[1];
  if (h.shape[0] == 0) return {};
  // Both cores for the training run's shape alone: its law is most of what its case costs.
  const int threads = h.shape[0] * h.shape[1] * W.shape[0] > 1'000'000'000 ? 2 : 1;
  return oracle::sample_tokens::law(dtype, h, W, problem.scalars.at("temperature"), threads);
}

}  // namespace

const Driver& driver() {
  static const Driver one{
      .contract = &contract(),
      .fills = fill_names(),
      .smooth_fills = fill_names(),
      .growing_symbol = "N",
      .size_symbol = "V",
      .may_be_empty = {"N"},
      .live = training_run(),
      .live_slice = dims(4, 1280, 67, 3),
      .live_groups = [](std::int64_t groups) { return dims(2 * groups, 8, 50257, 2); },
      .live_float64 = dims(2, 8, 50257, 1),
      .for_threads = dims(9, 64, 4001, 4),
      .corners = {dims(33, 65, 1031, 32), dims(130, 4, 300, 64), dims(2, 1280, 5003, 1), dims(70, 16, 2049, 69)},
      .memory_shapes = {dims(64, 16, 2000, 16), dims(256, 16, 2000, 16), dims(16, 16, 8000, 16), dims(33, 16, 2000, 0),
                        dims(50, 300, 900, 16)},
      .flat = Flat{.symbol = "N",
                   .other = "V",
                   .few = 64,
                   .dims = dims(1024, 8, 4000, 16),
                   .allowance = [](const Dims& dims) { return vocabulary::chunk_elements(dims, 2); },
                   .text = "one chunk's logits and probabilities, h and 16 numbers a row"},
      .violations = violations(),
      .longest_block = 8192,
      .longest_wrong_block = 64,
      .shapes = vocabulary::shapes,
      .random_shape = vocabulary::random_shape,
      .classes = vocabulary::classes,
      .required_classes = required_classes,
      .fill = fill,
      .law = law,
      .seed_scalar = "seed",
      .seeds = seeds,
      .chunk_symbol = "ce_chunk",
      .draws = draws,
  };
  return one;
}

}  // namespace fractus::sample_tokens
