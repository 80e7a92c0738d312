// The driver of the sampler: its shapes, its fills, its law.
#include "contracts/sample_tokens.h"

#include <algorithm>
#include <limits>

#include "oracle/sample_tokens.h"
#include "properties/driver.h"
#include "properties/sample_tokens_fill.h"

namespace fractus::sample_tokens {
namespace {

Dims dims(std::int64_t N, std::int64_t d, std::int64_t V, std::int64_t ce_chunk) {
  return {{"N", N}, {"d", d}, {"V", V}, {"ce_chunk", ce_chunk}};
}

constexpr std::int64_t far_above = 1000;

// B 2, T 128. The run's own ce_chunk, 2048, would be one chunk of these rows; 96 leaves a short last one.
Dims training_run() { return dims(256, 1280, 50257, 96); }

// Every border of a block of the vocabulary against every way in which ce_chunk lies to N.
std::vector<Dims> shapes(std::int64_t block) {
  const std::vector<std::int64_t> vocabularies{
      5, 31, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1, 3 * block + 5, 2, 3, 257};
  const std::vector<std::int64_t> rows{4, 7, 8, 5, 2, 16, 3, 13};
  const std::vector<std::int64_t> widths{4, 1, 8, 3, 5, 2, 16};
  std::vector<Dims> list;
  std::size_t turn = 0;
  for (const std::int64_t V : vocabularies) {
    if (V < 1) continue;
    const std::int64_t N = rows[turn % rows.size()];
    const std::vector<std::int64_t> chunks{3, 1, N - 1, 0, N, 2, N + 1, far_above, N / 2};
    list.push_back(dims(N, widths[turn % widths.size()], V, chunks[turn % chunks.size()]));
    ++turn;
  }
  for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{1}, std::int64_t{6}, std::int64_t{7}, std::int64_t{8},
                                   std::int64_t{3}, far_above})
    list.push_back(dims(7, 3, 37, chunk));
  // Widths, rows and vocabularies that a kernel may treat apart.
  for (const Dims& one :
       {dims(1, 4, 11, 0),   dims(1, 2, 130, 1),  dims(1, 5, 9, 4),     dims(3, 4, 1, 2),     dims(2, 1, 1, 0),
        dims(5, 32, 40, 2),  dims(3, 17, 65, 2),  dims(4, 64, 33, 3),   dims(2, 65, 19, 1),   dims(3, 128, 20, 2),
        dims(37, 3, 29, 10), dims(65, 2, 17, 16), dims(129, 1, 5, 128), dims(256, 2, 9, 100), dims(3, 2, 1009, 2),
        dims(4, 3, 1025, 3), dims(2, 4, 1500, 1), dims(5, 2, 2500, 2),  dims(2, 3, 5003, 0),  dims(3, 3, 10007, 2)})
    list.push_back(one);
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange;
  const auto vocabulary = rc::gen::weightedOneOf<std::int64_t>({{3, inRange<std::int64_t>(1, 40)},
                                                                {3, inRange<std::int64_t>(1, 2 * block + 2)},
                                                                {1, inRange<std::int64_t>(200, 3000)}});
  const auto rows =
      rc::gen::weightedOneOf<std::int64_t>({{4, inRange<std::int64_t>(1, 12)}, {2, inRange<std::int64_t>(12, 80)}});
  const auto width = rc::gen::weightedOneOf<std::int64_t>(
      {{9, rc::gen::element<std::int64_t>(1, 2, 3, 4, 5, 8, 8, 12, 16)}, {1, inRange<std::int64_t>(17, 80)}});
  const auto chunk = rc::gen::weightedOneOf<std::int64_t>(
      {{1, rc::gen::just<std::int64_t>(0)}, {5, inRange<std::int64_t>(1, 14)}, {1, rc::gen::just(far_above)}});
  return rc::gen::map(rc::gen::tuple(rows, width, vocabulary, chunk), [](const auto& t) {
    const auto [N, d, V, ce_chunk] = t;
    return dims(N, d, V, ce_chunk);
  });
}

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

std::vector<std::string> classes(const Case& c, std::int64_t block) {
  const std::int64_t N = c.dims.at("N"), V = c.dims.at("V"), chunk = c.dims.at("ce_chunk");
  std::vector<std::string> all;
  if (N == 0)
    all.emplace_back("N = 0");
  else
    all.emplace_back(chunk == 0      ? "ce_chunk = 0"
                     : chunk > N     ? "ce_chunk > N"
                     : chunk == N    ? "ce_chunk = N"
                     : N % chunk > 0 ? "short last chunk"
                                     : "whole chunks");
  if (chunk == 1) all.emplace_back("ce_chunk = 1");
  if (N == 1) all.emplace_back("N = 1");
  if (V == 1) all.emplace_back("V = 1");
  all.emplace_back(V < block ? "V short of a block" : V % block == 0 ? "V whole blocks" : "V ragged tail");
  return all;
}

std::vector<std::string> required_classes(std::int64_t block) {
  std::vector<std::string> all{"N = 0",        "ce_chunk = 0", "ce_chunk > N", "ce_chunk = N", "short last chunk",
                               "whole chunks", "ce_chunk = 1", "N = 1",        "V = 1",        "V whole blocks"};
  if (block > 1) all.insert(all.end(), {"V short of a block", "V ragged tail"});
  return all;
}

Problem with_scalar(Problem problem, const std::string& name, double value) {
  problem.scalars[name] = value;
  return problem;
}

// The contract says nothing of a temperature that is none, of NaN, of a negative ce_chunk and of seeds outside of the
// range; forms in wide use compute with all of them. What is asked is that the tokens are tokens: any of the vocabulary
// in a row that has no law, and what may be drawn in every other.
std::vector<Violation> violations() {
  const auto no_law = [](Problem problem) {
    std::fill(problem.inputs[0]->values.begin(), problem.inputs[0]->values.end(), 0.0);
    return with_scalar(std::move(problem), "temperature", 1);
  };
  const auto scalar = [](const std::string& name, double value) {
    return [name, value](Problem problem, std::uint64_t) { return with_scalar(std::move(problem), name, value); };
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
       .spoiled =
           [](Problem problem, std::uint64_t seed) {
             std::vector<double>& h = problem.inputs[0]->values;
             h[seed % h.size()] = nan;
             return problem;
           },
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

// One chunk's logits, their probabilities and a row's few numbers.
std::int64_t one_chunk(const Dims& dims) {
  const std::int64_t N = dims.at("N"), chunk = dims.at("ce_chunk") == 0 ? N : std::min(dims.at("ce_chunk"), N);
  return 2 * chunk * dims.at("V") + N * (dims.at("d") + 16);
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
                   .allowance = one_chunk,
                   .text = "one chunk's logits and probabilities, h and 16 numbers a row"},
      .violations = violations(),
      .longest_block = 8192,
      .longest_wrong_block = 64,
      .shapes = shapes,
      .random_shape = random_shape,
      .classes = classes,
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
