// The driver of linear attention: its shapes, its fills, its definition.
#include "contracts/linear_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "oracle/linear_attention_expected.h"
#include "oracle/linear_attention_field.h"
#include "properties/driver.h"
#include "properties/linear_attention_fill.h"

namespace fractus::linear_attention {
namespace {

std::vector<Dims> shapes(std::int64_t block) {
  // Every border of the block, with few groups and a narrow head so that hundreds of cases cost a second.
  const std::vector<std::int64_t> lengths{
      1, 2, 3, 5, 7, 16, 37, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1, 3 * block + 5};
  const std::vector<std::int64_t> groups{3, 1, 7, 2, 13, 1, 5};
  const std::vector<std::int64_t> widths{4, 1, 8, 3, 5, 2, 16};
  std::vector<Dims> list;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      list.push_back({{"G", groups[i % groups.size()]},
                      {"T", lengths[i]},
                      {"D", widths[(i + i / widths.size()) % widths.size()]}});
  list.push_back({{"G", 17}, {"T", 5}, {"D", 4}});  // a prime above 8: groups handled in eights leave a rest
  list.push_back({{"G", 97}, {"T", 3}, {"D", 2}});  // many groups
  // One group each: what a kernel treats apart is a width or a length of its own (registers, warps, a tile's edge).
  for (const auto& [T, D] : std::vector<std::pair<std::int64_t, std::int64_t>>{{9, 32},
                                                                               {6, 17},
                                                                               {4, 24},
                                                                               {3, 33},
                                                                               {5, 48},
                                                                               {4, 63},
                                                                               {2, 64},
                                                                               {12, 64},
                                                                               {3, 65},
                                                                               {2, 96},
                                                                               {3, 128},
                                                                               {200, 4},
                                                                               {257, 3},
                                                                               {300, 2}})
    list.push_back({{"G", 1}, {"T", T}, {"D", D}});
  // 40 groups a sequence in the training run.
  for (std::int64_t G : {32, 40, 80, 128, 160, 320}) list.push_back({{"G", G}, {"T", 2}, {"D", 2}});
  list.push_back({{"G", 2}, {"T", block + 1}, {"D", 64}});
  return list;
}

// The adjoint multiplies five entries; float32 holds that exactly for short sequences of narrow heads only.
std::vector<Dims> exact_backward_shapes(std::int64_t block) {
  std::vector<Dims> list = shapes(block);
  std::erase_if(list, [](const Dims& dims) { return dims.at("T") * dims.at("D") > 100; });
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange;
  const auto border =
      rc::gen::map(rc::gen::pair(inRange<std::int64_t>(1, 4), inRange<std::int64_t>(-1, 2)),
                   [block](const auto& p) { return std::max<std::int64_t>(1, p.first * block + p.second); });
  const auto length = rc::gen::weightedOneOf<std::int64_t>(
      {{4, inRange<std::int64_t>(1, 12)}, {3, inRange<std::int64_t>(1, 2 * block + 2)}, {2, border}});
  const auto groups =
      rc::gen::weightedOneOf<std::int64_t>({{6, inRange<std::int64_t>(1, 5)}, {2, inRange<std::int64_t>(5, 20)}});
  const auto width = rc::gen::weightedOneOf<std::int64_t>(
      {{9, rc::gen::element<std::int64_t>(1, 2, 3, 4, 5, 8, 8, 12, 16)}, {1, inRange<std::int64_t>(17, 40)}});
  return rc::gen::map(rc::gen::tuple(groups, length, width), [](const auto& t) {
    const auto [G, T, D] = t;
    return Dims{{"G", D > 16 ? std::min<std::int64_t>(G, 2) : G}, {"T", T}, {"D", D}};  // D^2 costs enough by itself
  });
}

oracle::linear_attention::Question question_of(const Problem& problem, DType dtype) {
  return {.dtype = dtype, .inputs = problem.inputs, .cotangents = problem.cotangents};
}

oracle::Expected expected(const Problem& problem, DType dtype, const Judged& judged) {
  oracle::linear_attention::Question question = question_of(problem, dtype);
  question.answered_y = judged.outputs == nullptr || judged.outputs->empty() ? nullptr : &judged.outputs->front();
  question.threads = judged.threads;
  return oracle::linear_attention::expected(question);
}

Exactness exactness(const Problem& problem, DType dtype) {
  const auto exact = oracle::linear_attention::exactness(question_of(problem, dtype));
  return {exact.outputs, exact.gradients, exact.fullness};
}

// Every border of the block up to three of them, all else small; groups beyond eight, a width beyond a vector's, and
// the training run's widths once.
std::vector<Dims> field_shapes(std::int64_t block) {
  const std::vector<std::int64_t> lengths{1,         block - 1,     block,         block + 1, 2 * block - 1,
                                          2 * block, 2 * block + 1, 3 * block - 1, 3 * block, 3 * block + 1};
  const std::vector<std::int64_t> groups{3, 1, 2}, widths{3, 2, 4, 1};
  std::vector<Dims> list;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      list.push_back({{"G", groups[i % groups.size()]}, {"T", lengths[i]}, {"D", widths[i % widths.size()]}});
  list.push_back({{"G", 11}, {"T", 5}, {"D", 3}});
  list.push_back({{"G", 1}, {"T", 4}, {"D", 33}});
  list.push_back({{"G", 2}, {"T", 128}, {"D", 64}});
  return list;
}

std::vector<Supposition> suppositions() {
  using oracle::linear_attention::Epsilon;
  const auto with = [](Epsilon epsilon) {
    return [epsilon](const FieldCall& call) { return oracle::linear_attention::over_field(call, epsilon); };
  };
  std::vector<Supposition> list{{"the 1e-20 in the denominator were dropped", with({.dropped = true})}};
  for (int exponent = -19; exponent <= -1; ++exponent)
    list.push_back(
        {fmt::format("1e{} stood for the 1e-20 in the denominator", exponent), with({.exponent = exponent})});
  for (int exponent = -19; exponent <= -1; ++exponent)
    list.push_back({fmt::format("1e{} were added to the denominator beside the 1e-20", exponent),
                    with({.exponent = exponent, .beside = true})});
  return list;
}

}  // namespace

const Driver& driver() {
  static const Driver d{
      .contract = &contract(),
      .fills = fill_names(),
      .smooth_fills = {"feature", "signed", "small_denominators", "zero_rows", "cancelling", "magnitudes", "wild",
                       "sparse", "one_hot", "constant", "zero_tensors"},
      .aligned_fills = {"constant"},
      .exact_fill = "lattice",
      .exact_backward_fill = "lattice_balanced",
      .wide_fills = wide_fill_names(),
      .choice_fill = "near_cut",
      .batch_symbol = "G",
      .sequence_symbol = "T",
      .growing_symbol = "T",
      .size_symbol = "T",
      .may_be_empty = {"G", "T"},
      .carry = {{"S", "S0"}, {"z", "z0"}},
      .along_sequence = {"q", "k", "v", "y"},
      .live = {{"G", 80}, {"T", 128}, {"D", 64}},  // B 2: 40 groups a sequence, KERNELS.md
      .live_slice = {{"G", 2}, {"T", 5}, {"D", 64}},
      .live_groups =
          [](std::int64_t groups) {
            return Dims{{"G", groups}, {"T", 128}, {"D", 64}};
          },
      .live_float64 = {{"G", 2}, {"T", 128}, {"D", 64}},
      .for_threads = {{"G", 5}, {"T", 128}, {"D", 64}},
      .corners = {{{"G", 1}, {"T", 256}, {"D", 64}},
                  {{"G", 2}, {"T", 130}, {"D", 65}},
                  {{"G", 9}, {"T", 19}, {"D", 33}},
                  {{"G", 40}, {"T", 128}, {"D", 4}}},
      .memory_shapes = {{{"G", 2}, {"T", 256}, {"D", 16}},
                        {{"G", 2}, {"T", 1024}, {"D", 16}},
                        {{"G", 2}, {"T", 4096}, {"D", 16}},
                        {{"G", 2}, {"T", 1025}, {"D", 16}},
                        {{"G", 2}, {"T", 768}, {"D", 64}}},
      .shapes = shapes,
      .wide_shapes = shapes,
      .exact_backward_shapes = exact_backward_shapes,
      .random_shape = random_shape,
      .fill = fill,
      .expected = expected,
      .exactness = exactness,
      .over_field = [](const FieldCall& call) { return oracle::linear_attention::over_field(call); },
      .degrees = oracle::linear_attention::degrees,
      .suppositions = suppositions(),
      .field_shapes = field_shapes,
  };
  return d;
}

}  // namespace fractus::linear_attention
