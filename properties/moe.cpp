// The driver of the mixture of experts: its shapes, its fills, its definition.
#include "contracts/moe.h"

#include <algorithm>

#include "oracle/moe_expected.h"
#include "properties/driver.h"
#include "properties/gating.h"
#include "properties/moe_fill.h"

namespace fractus::moe {
namespace {

Dims dims(std::int64_t B, std::int64_t T, std::int64_t d, std::int64_t P, std::int64_t E, std::int64_t F,
          std::int64_t r, std::int64_t top_k) {
  return {{"B", B}, {"T", T}, {"d", d}, {"P", P}, {"E", E}, {"F", F}, {"r", r}, {"top_k", top_k}};
}

// Both ways in which production goes through the experts (E up to twice top_k, and above), dense and of low rank;
// experts that nobody chose, a single one, all of them; widths and tokens around the block's borders.
std::vector<Dims> shapes(std::int64_t block) {
  std::vector<Dims> list{
      dims(2, 5, 12, 8, 4, 10, 0, 2),  dims(2, 5, 12, 8, 8, 10, 3, 2),  dims(1, 6, 8, 8, 6, 6, 0, 2),
      dims(1, 4, 8, 8, 4, 6, 2, 2),    dims(1, 3, 5, 4, 1, 7, 0, 1),    dims(2, 2, 4, 4, 1, 3, 2, 1),
      dims(1, 7, 6, 16, 8, 9, 1, 8),   dims(1, 4, 3, 5, 5, 4, 0, 5),    dims(1, 9, 16, 16, 16, 12, 4, 1),
      dims(3, 2, 7, 3, 9, 5, 0, 4),    dims(2, 3, 9, 16, 128, 8, 2, 2), dims(1, 2, 8, 16, 128, 4, 0, 2),
      dims(1, 1, 1, 1, 2, 1, 1, 1),    dims(1, 1, 17, 2, 3, 33, 0, 2),  dims(1, 33, 4, 8, 4, 5, 2, 2),
      dims(4, 8, 10, 16, 5, 16, 5, 2), dims(1, 3, 40, 8, 7, 65, 0, 3),  dims(1, 5, 64, 16, 6, 24, 8, 3),
      dims(2, 17, 5, 4, 12, 6, 3, 2),  dims(1, 12, 8, 16, 32, 8, 2, 8), dims(1, 20, 6, 8, 5, 8, 0, 2)};
  for (const std::int64_t T : {block - 1, block, block + 1, 2 * block + 1})
    if (T > 0) list.push_back(dims(1, T, 4, 3, 5, 4, T % 2, 2));
  for (const std::int64_t F : {block - 1, block, block + 1})
    if (F > 0) list.push_back(dims(1, 3, 6, 4, 4, F, 2 * (F % 2), 2));
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange, rc::gen::element;
  const auto border = inRange<std::int64_t>(std::max<std::int64_t>(1, block - 2), block + 3);
  const auto tokens = rc::gen::weightedOneOf<std::int64_t>({{8, inRange<std::int64_t>(1, 12)}, {1, border}});
  const auto width = rc::gen::weightedOneOf<std::int64_t>(
      {{6, inRange<std::int64_t>(1, 17)}, {2, element<std::int64_t>(16, 32, 33)}, {1, border}});
  const auto experts = rc::gen::weightedOneOf<std::int64_t>(
      {{2, element<std::int64_t>(1, 2, 4, 8)}, {6, inRange<std::int64_t>(1, 14)}, {1, inRange<std::int64_t>(14, 130)}});
  const auto oscillators = element<std::int64_t>(16, 8, 2, 1, 5, 3);
  const auto rank =
      rc::gen::weightedOneOf<std::int64_t>({{2, rc::gen::just<std::int64_t>(0)}, {3, inRange<std::int64_t>(1, 7)}});
  const auto chosen = rc::gen::weightedElement<int>({{5, 2}, {1, 0}, {2, 1}, {2, 3}});
  return rc::gen::map(rc::gen::tuple(inRange<std::int64_t>(1, 4), tokens, rc::gen::pair(width, width), oscillators,
                                     experts, rank, chosen),
                      [](const auto& draw) {
                        const auto& [B, T, widths, P, E, r, kind] = draw;
                        // 0: all of them; 3: about a third.
                        const std::int64_t top_k = kind == 0   ? std::min<std::int64_t>(E, 12)
                                                   : kind == 3 ? std::min<std::int64_t>(E / 3 + 1, 9)
                                                               : std::min<std::int64_t>(kind, E);
                        // All experts for all tokens cost B T E d F.
                        const std::int64_t most = std::max<std::int64_t>(1, 400000 / (B * T * E));
                        const std::int64_t d = widths.first,
                                           F = std::min(widths.second, std::max<std::int64_t>(1, most / d));
                        return dims(B, T, d, P, E, F, r, top_k);
                      });
}

std::vector<std::string> classes(const Case& c, std::int64_t) {
  const std::int64_t E = c.dims.at("E"), top_k = c.dims.at("top_k");
  std::vector<std::string> all;
  all.emplace_back(c.dims.at("r") == 0 ? "dense experts" : "experts of low rank");
  all.emplace_back(E <= 2 * top_k ? "E <= 2 top_k" : "E > 2 top_k");
  if (E == 1) all.emplace_back("E = 1");
  if (const std::string chosen = gating::class_of_top_k(c); !chosen.empty()) all.push_back(chosen);
  if (E > c.dims.at("B") * c.dims.at("T") * top_k) all.emplace_back("experts that nobody chose");
  all.emplace_back(c.dims.at("B") * c.dims.at("T") == 1 ? "one token" : "several tokens");
  return all;
}

std::vector<std::string> required_classes(std::int64_t) {
  return {
      "dense experts", "experts of low rank",       "E <= 2 top_k", "E > 2 top_k",   "E = 1", "top_k = E", "top_k = 1",
      "1 < top_k < E", "experts that nobody chose", "one token",    "several tokens"};
}

oracle::Expected expected(const Problem& problem, DType dtype, const Judged& judged) {
  return oracle::moe::expected({.dtype = dtype,
                                .inputs = problem.inputs,
                                .kappa = problem.scalars.at("kappa"),
                                .temperature = problem.scalars.at("temperature"),
                                .top_k = static_cast<std::size_t>(problem.scalars.at("top_k")),
                                .cotangents = problem.cotangents,
                                .answered = judged.outputs,
                                .threads = judged.threads});
}

}  // namespace

const Driver& driver() {
  static const Driver one{
      .contract = &contract(),
      .fills = fill_names(),
      .smooth_fills = smooth_fill_names(),
      .aligned_fills = {"positive"},
      .choice_fill = "near_ties",
      .choices_settled = true,
      .growing_symbol = "T",
      .size_symbol = "d",
      .live = dims(1, 128, 1280, 16, 128, 2048, 64, 2),
      .live_slice = dims(1, 3, 1280, 16, 5, 48, 4, 2),
      // The run's widths with a few of its experts.
      .live_groups = [](std::int64_t groups) { return dims(1, 4 * groups, 1280, 16, 5, 2048, 64, 2); },
      .live_float64 = dims(1, 8, 1280, 16, 5, 2048, 64, 2),
      .for_threads = dims(1, 60, 640, 4, 3, 24, 2, 2),
      .corners = {dims(3, 19, 65, 16, 8, 33, 7, 3), dims(1, 130, 33, 5, 3, 65, 0, 2),
                  dims(2, 2, 257, 33, 17, 129, 16, 1), dims(5, 7, 16, 8, 100, 20, 0, 4)},
      .memory_shapes = {dims(1, 64, 16, 8, 8, 24, 0, 2), dims(1, 256, 16, 8, 8, 24, 4, 2),
                        dims(2, 128, 32, 8, 4, 16, 0, 2), dims(1, 64, 64, 16, 32, 48, 8, 2)},
      .violations = {gating::too_steep(), gating::temperature_0()},
      .shapes = shapes,
      .random_shape = random_shape,
      .classes = classes,
      .required_classes = required_classes,
      .fill = fill,
      .expected = expected,
  };
  return one;
}

}  // namespace fractus::moe
