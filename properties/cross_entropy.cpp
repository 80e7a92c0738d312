// The driver of cross entropy: its shapes, its fills, its definition.
#include "contracts/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "oracle/cross_entropy_expected.h"
#include "properties/cross_entropy_fill.h"
#include "properties/driver.h"

namespace fractus::cross_entropy {
namespace {

Dims dims(std::int64_t N, std::int64_t d, std::int64_t V, std::int64_t ce_chunk) {
  return {{"N", N}, {"d", d}, {"V", V}, {"ce_chunk", ce_chunk}};
}

constexpr std::int64_t far_above = 2048;  // the training run's own, above most N here

// Every border of the vocabulary's block against every way in which ce_chunk lies to N.
std::vector<Dims> shapes(std::int64_t block) {
  const std::vector<std::int64_t> vocabularies{
      5, 31, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1, 3 * block + 5, 2, 3, 257};
  const std::vector<std::int64_t> rows{4, 7, 8, 5, 2, 16, 3, 13};
  const std::vector<std::int64_t> widths{4, 1, 8, 3, 5, 2, 16};
  std::vector<Dims> list;
  std::size_t turn = 0;
  for (const std::int64_t V : vocabularies) {
    if (V < 1) continue;
    const std::int64_t N = V > 2000 ? std::min<std::int64_t>(rows[turn % rows.size()], 5) : rows[turn % rows.size()];
    const std::vector<std::int64_t> chunks{3, 1, N - 1, 0, N, 2, N + 1, far_above, N / 2};
    list.push_back(dims(N, widths[turn % widths.size()], V, std::max<std::int64_t>(chunks[turn % chunks.size()], 0)));
    ++turn;
  }
  for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{1}, std::int64_t{6}, std::int64_t{7}, std::int64_t{8},
                                   std::int64_t{3}, far_above})
    list.push_back(dims(7, 3, 37, chunk));
  // Widths, rows and vocabularies that a kernel may treat apart.
  for (const Dims& one :
       {dims(1, 4, 11, 0),    dims(1, 2, 130, 1),   dims(1, 5, 9, 4),    dims(3, 4, 1, 2),     dims(2, 1, 1, 0),
        dims(5, 32, 40, 2),   dims(3, 17, 65, 2),   dims(4, 64, 33, 3),  dims(2, 65, 19, 1),   dims(2, 96, 24, 2),
        dims(3, 128, 20, 2),  dims(37, 3, 29, 10),  dims(64, 2, 17, 16), dims(65, 2, 17, 16),  dims(100, 4, 7, 32),
        dims(129, 1, 5, 128), dims(256, 2, 9, 100), dims(300, 2, 6, 7),  dims(1024, 2, 5, 96), dims(3, 2, 1009, 2),
        dims(4, 3, 1025, 3),  dims(2, 4, 1500, 1),  dims(5, 2, 2500, 2), dims(2, 3, 5003, 0),  dims(3, 3, 10007, 2),
        dims(4, 2, 70001, 3)})
    list.push_back(one);
  return list;
}

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// The mean is exact where N is a power of two.
std::vector<Dims> exact_shapes(std::int64_t block) {
  std::vector<Dims> list = shapes(block);
  for (Dims& one : list)
    while (!is_power_of_two(one.at("N"))) --one.at("N");
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange;
  const auto border =
      rc::gen::map(rc::gen::pair(inRange<std::int64_t>(1, 4), inRange<std::int64_t>(-1, 2)),
                   [block](const auto& p) { return std::max<std::int64_t>(1, p.first * block + p.second); });
  const auto vocabulary = rc::gen::weightedOneOf<std::int64_t>({{3, inRange<std::int64_t>(1, 40)},
                                                                {3, inRange<std::int64_t>(1, 2 * block + 2)},
                                                                {2, border},
                                                                {1, inRange<std::int64_t>(200, 3000)}});
  const auto rows = rc::gen::weightedOneOf<std::int64_t>({{4, inRange<std::int64_t>(1, 12)},
                                                          {3, rc::gen::element<std::int64_t>(1, 2, 4, 8, 16, 32)},
                                                          {1, inRange<std::int64_t>(12, 80)}});
  const auto width = rc::gen::weightedOneOf<std::int64_t>(
      {{9, rc::gen::element<std::int64_t>(1, 2, 3, 4, 5, 8, 8, 12, 16)}, {1, inRange<std::int64_t>(17, 80)}});
  const auto chunk = rc::gen::weightedOneOf<std::int64_t>(
      {{1, rc::gen::just<std::int64_t>(0)}, {5, inRange<std::int64_t>(1, 14)}, {1, rc::gen::just(far_above)}});
  return rc::gen::map(rc::gen::tuple(rows, width, vocabulary, chunk), [](const auto& t) {
    const auto [N, d, V, ce_chunk] = t;
    return dims(V > 3000 ? std::min<std::int64_t>(N, 4) : N, d, V, ce_chunk);
  });
}

std::vector<std::string> classes(const Case& c, std::int64_t block) {
  const std::int64_t N = c.dims.at("N"), V = c.dims.at("V"), chunk = c.dims.at("ce_chunk");
  std::vector<std::string> all;
  all.emplace_back(chunk == 0      ? "ce_chunk = 0"
                   : chunk > N     ? "ce_chunk > N"
                   : chunk == N    ? "ce_chunk = N"
                   : N % chunk > 0 ? "short last chunk"
                                   : "whole chunks");
  if (chunk == 1) all.emplace_back("ce_chunk = 1");
  if (N == 1) all.emplace_back("N = 1");
  if (V == 1) all.emplace_back("V = 1");
  all.emplace_back(V < block ? "V short of a block" : V % block == 0 ? "V whole blocks" : "V ragged tail");
  if (c.variant == "tied") all.emplace_back("h of W's rows");
  return all;
}

std::vector<std::string> required_classes(std::int64_t block) {
  std::vector<std::string> all{"ce_chunk = 0", "ce_chunk > N", "ce_chunk = N", "short last chunk", "whole chunks",
                               "ce_chunk = 1", "N = 1",        "V = 1",        "V whole blocks"};
  if (block > 1) all.insert(all.end(), {"V short of a block", "V ragged tail"});
  return all;
}

Problem with_target(Problem problem, std::uint64_t seed, double target) {
  std::vector<double>& targets = problem.inputs[2]->values;
  targets[seed % targets.size()] = target;
  return problem;
}

Problem with_nan(Problem problem, std::size_t input, std::uint64_t seed) {
  std::vector<double>& values = problem.inputs[input]->values;
  values[seed % values.size()] = std::numeric_limits<double>::quiet_NaN();
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

// One row more, whose target is the one that torch leaves out.
Problem with_ignored_row(Problem problem, std::uint64_t) {
  Array &h = *problem.inputs[0], &targets = *problem.inputs[2];
  const std::vector<double> first(h.values.begin(), h.values.begin() + h.shape[1]);
  h.values.insert(h.values.end(), first.begin(), first.end());
  targets.values.push_back(ignored_target);
  h.shape[0] = ++targets.shape[0];
  return problem;
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
      {.name = "target_huge", .text = "a target of 2^40", .spoiled = target([](const Problem&) { return 0x1p40; })},
      {.name = "target_ignored",
       .text = "a target of -100",
       .spoiled = with_ignored_row,
       .same_as = [](Problem problem) { return first_rows(problem, problem.inputs[0]->shape[0] - 1); }},
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
       .spoiled =
           [](Problem problem, std::uint64_t) {
             problem.scalars["ce_chunk"] = -1;
             return problem;
           },
       .same_as =
           [](Problem problem) {
             problem.scalars["ce_chunk"] = 0;
             return problem;
           }},
  };
}

oracle::cross_entropy::Question question_of(const Problem& problem, DType dtype) {
  return {.dtype = dtype, .inputs = problem.inputs, .cotangent = problem.cotangents.at(0)};
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

// One chunk's logits, and a few numbers and a copy of h for each row.
std::int64_t one_chunk(const Dims& dims) {
  const std::int64_t N = dims.at("N"), chunk = dims.at("ce_chunk") == 0 ? N : std::min(dims.at("ce_chunk"), N);
  return chunk * dims.at("V") + N * (dims.at("d") + 16);
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
      .growing_symbol = "N",
      .size_symbol = "V",
      .tied = {"h", "W"},
      // B 2, T 128. The run's own ce_chunk, 2048, would be one chunk of these rows; 96 leaves a short last one.
      .live = dims(256, 1280, 50257, 96),
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
                   .allowance = one_chunk,
                   .text = "one chunk's logits, h and 16 numbers a row"},
      .violations = violations(),
      .longest_block = 8192,
      .longest_wrong_block = 64,
      .recorded_with = {{{"ce_chunk", 0}}, {{"ce_chunk", 1}}, {{"ce_chunk", 5}}, {{"ce_chunk", 64}}},
      .shapes = shapes,
      .wide_shapes = exact_shapes,
      .exact_backward_shapes = exact_shapes,
      .random_shape = random_shape,
      .classes = classes,
      .required_classes = required_classes,
      .fill = fill,
      .expected = expected,
      .exactness = exactness,
  };
  return one;
}

}  // namespace fractus::cross_entropy
