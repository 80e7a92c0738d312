// The driver of the gate: its shapes, its fills, its definition.
#include "contracts/moe_gate.h"

#include <algorithm>

#include "oracle/moe_gate_expected.h"
#include "properties/driver.h"
#include "properties/gating.h"
#include "properties/moe_gate_fill.h"

namespace fractus::moe_gate {
namespace {

Dims dims(std::int64_t B, std::int64_t T, std::int64_t P, std::int64_t E, std::int64_t top_k) {
  return {{"B", B}, {"T", T}, {"P", P}, {"E", E}, {"top_k", top_k}};
}

// Tokens and experts around the block's borders; all ways in which top_k lies to E.
std::vector<Dims> shapes(std::int64_t block) {
  std::vector<Dims> list{dims(2, 5, 16, 8, 2),   dims(1, 7, 8, 32, 8),  dims(1, 3, 16, 128, 2),
                         dims(3, 2, 5, 8, 8),    dims(1, 1, 4, 1, 1),   dims(2, 3, 3, 1, 1),
                         dims(1, 4, 16, 2, 1),   dims(2, 2, 2, 2, 2),   dims(1, 1, 16, 128, 1),
                         dims(1, 9, 1, 7, 3),    dims(4, 1, 33, 5, 4),  dims(1, 2, 16, 128, 128),
                         dims(1, 6, 17, 31, 30), dims(2, 4, 2, 33, 16), dims(5, 3, 15, 3, 2),
                         dims(1, 2, 300, 4, 2),  dims(1, 3, 8, 300, 2), dims(2, 17, 16, 16, 4)};
  for (const std::int64_t T : {block - 1, block, block + 1, 2 * block + 1})
    if (T > 0) list.push_back(dims(1, T, 3, 4, 2));
  for (const std::int64_t E : {block - 1, block, block + 1})
    if (E > 1) list.push_back(dims(1, 2, 4, E, 2));
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange, rc::gen::element;
  const auto tokens = rc::gen::weightedOneOf<std::int64_t>(
      {{6, inRange<std::int64_t>(1, 12)}, {1, inRange<std::int64_t>(std::max<std::int64_t>(1, block - 2), block + 3)}});
  const auto experts = rc::gen::weightedOneOf<std::int64_t>({{3, element<std::int64_t>(1, 2, 8, 128)},
                                                             {4, inRange<std::int64_t>(1, 20)},
                                                             {1, inRange<std::int64_t>(20, 140)}});
  const auto oscillators = rc::gen::weightedOneOf<std::int64_t>(
      {{3, element<std::int64_t>(16, 8, 2)}, {3, inRange<std::int64_t>(1, 20)}, {1, inRange<std::int64_t>(20, 100)}});
  return rc::gen::map(
      rc::gen::tuple(inRange<std::int64_t>(1, 4), tokens, oscillators, experts,
                     rc::gen::weightedElement<int>({{4, 2}, {1, 0}, {2, 1}, {2, 3}})),
      [](const auto& draw) {
        const auto& [B, T, P, E, kind] = draw;
        // 0: all of them; 3: about a third.
        const std::int64_t top_k = kind == 0 ? E : kind == 3 ? E / 3 + 1 : std::min<std::int64_t>(kind, E);
        return dims(B, T, P, E, top_k);
      });
}

std::vector<std::string> classes(const Case& c, std::int64_t) {
  const std::int64_t E = c.dims.at("E");
  std::vector<std::string> all;
  for (const std::int64_t size : {1, 2, 8, 128})
    if (E == size) all.push_back("E = " + std::to_string(size));
  if (const std::string chosen = gating::class_of_top_k(c); !chosen.empty()) all.push_back(chosen);
  if (c.dims.at("P") == 1) all.emplace_back("P = 1");
  all.emplace_back(c.dims.at("B") * c.dims.at("T") == 1 ? "one token" : "several tokens");
  return all;
}

std::vector<std::string> required_classes(std::int64_t) {
  return {"E = 1",     "E = 2",         "E = 8", "E = 128",   "top_k = E",
          "top_k = 1", "1 < top_k < E", "P = 1", "one token", "several tokens"};
}

oracle::Expected expected(const Problem& problem, DType dtype, const Judged& judged) {
  return oracle::moe_gate::expected({.dtype = dtype,
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
      .aligned_fills = {"all_equal"},
      .choice_fill = "midpoints",
      .choices_shown = true,
      .growing_symbol = "T",
      .size_symbol = "E",
      // A softmax in logs rounds by the size of its exponents, a quotient of exponentials does not.
      .comparable = [](const Case& c) { return c.fill != "steep" && c.fill != "at_cut" && c.fill != "one_sided"; },
      .live = dims(1, 128, 16, 128, 2),
      .live_slice = dims(1, 3, 16, 128, 2),
      .live_groups = [](std::int64_t groups) { return dims(groups, 128, 16, 128, 2); },
      .live_float64 = dims(1, 128, 16, 128, 2),
      .for_threads = dims(3, 100, 16, 128, 2),
      .corners = {dims(2, 3, 1, 1, 1), dims(1, 65, 33, 8, 8), dims(3, 5, 2, 128, 7), dims(7, 11, 100, 2, 1)},
      .memory_shapes = {dims(1, 128, 16, 128, 2), dims(2, 256, 16, 8, 2), dims(1, 512, 16, 128, 2),
                        dims(1, 64, 300, 4, 4)},
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

}  // namespace fractus::moe_gate
