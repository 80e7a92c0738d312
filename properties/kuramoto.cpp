// The driver of the oscillators: their shapes, fills and definition.
#include "contracts/kuramoto.h"

#include <fmt/format.h>

#include <algorithm>

#include "oracle/kuramoto_expected.h"
#include "properties/driver.h"
#include "properties/kuramoto_fill.h"

namespace fractus::kuramoto {
namespace {

Dims dims(std::int64_t B, std::int64_t T, std::int64_t d, std::int64_t P, std::int64_t r, std::int64_t n_steps) {
  return {{"B", B}, {"T", T}, {"d", d}, {"P", P}, {"r", r}, {"n_steps", n_steps}};
}

// Every border of a block of tokens or of a row, few oscillators; then oscillators, ranks and steps against each other.
std::vector<Dims> shapes(std::int64_t block) {
  const std::vector<std::int64_t> lengths{1, 2, 3, 7, block - 1, block, block + 1, 2 * block - 1, 2 * block + 1};
  const std::vector<std::int64_t> batches{2, 1, 3, 1, 1, 2, 1, 1, 1}, widths{4, 1, 8, 3, 5, 2, 16};
  const std::vector<std::int64_t> oscillators{2, 3, 4, 1, 5}, ranks{1, 2, 3}, steps{1, 2, 1, 4, 0};
  std::vector<Dims> list;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      list.push_back(dims(batches[i], lengths[i], widths[i % widths.size()], oscillators[i % oscillators.size()],
                          ranks[i % ranks.size()], steps[(i + i / steps.size()) % steps.size()]));
  for (const std::int64_t d : {block - 1, block, block + 1, 2 * block + 1, 3 * block + 5})
    if (d > 0) list.push_back(dims(1, 3, d, 3, 2, 1));
  for (const Dims& one :
       {dims(2, 3, 16, 16, 8, 1),  dims(1, 2, 12, 16, 8, 4), dims(1, 2, 5, 16, 1, 2),  dims(1, 3, 6, 1, 1, 1),
        dims(1, 2, 3, 1, 8, 4),    dims(2, 2, 1, 2, 8, 1),   dims(1, 4, 7, 2, 1, 4),   dims(1, 3, 9, 6, 3, 4),
        dims(1, 2, 4, 8, 8, 1),    dims(1, 3, 4, 17, 5, 1),  dims(1, 1, 8, 33, 4, 1),  dims(1, 1, 3, 64, 8, 1),
        dims(1, 2, 5, 31, 16, 1),  dims(1, 2, 64, 7, 2, 2),  dims(5, 1, 33, 4, 4, 3),  dims(17, 1, 2, 2, 2, 1),
        dims(1, 97, 2, 2, 1, 1),   dims(40, 2, 2, 3, 1, 1),  dims(1, 5, 128, 4, 2, 1), dims(2, 2, 257, 5, 2, 1),
        dims(1, 2, 1000, 3, 2, 1), dims(1, 3, 16, 16, 8, 0), dims(3, 2, 5, 4, 2, 0),   dims(1, 4, 3, 5, 3, 8),
        dims(1, 1, 1, 1, 1, 1),    dims(1, 1, 2, 3, 2, 16),  dims(1, 1, 4, 96, 2, 1),  dims(1, 1, 3, 129, 1, 1)})
    list.push_back(one);
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange;
  const auto border =
      rc::gen::map(rc::gen::pair(inRange<std::int64_t>(1, 3), inRange<std::int64_t>(-1, 2)),
                   [block](const auto& p) { return std::max<std::int64_t>(1, p.first * block + p.second); });
  const auto length = rc::gen::weightedOneOf<std::int64_t>({{8, inRange<std::int64_t>(1, 8)}, {1, border}});
  const auto batch = rc::gen::weightedElement<std::int64_t>({{4, 1}, {2, 2}, {1, 3}, {1, 5}});
  const auto width = rc::gen::weightedOneOf<std::int64_t>(
      {{4, inRange<std::int64_t>(1, 20)}, {2, inRange<std::int64_t>(20, 200)}, {1, border}});
  const auto oscillators = rc::gen::weightedOneOf<std::int64_t>({{6, inRange<std::int64_t>(1, 8)},
                                                                 {2, rc::gen::element<std::int64_t>(8, 16, 17)},
                                                                 {1, inRange<std::int64_t>(8, 34)}});
  const auto rank = rc::gen::element<std::int64_t>(1, 1, 2, 3, 4, 8);
  const auto steps = rc::gen::weightedElement<std::int64_t>({{1, 0}, {5, 1}, {2, 2}, {1, 3}, {2, 4}, {1, 7}});
  return rc::gen::map(rc::gen::tuple(batch, length, width, oscillators, rank, steps), [](const auto& t) {
    const auto [B, T, d, P, r, n] = t;
    // The adjoint of a token costs P r n_steps.
    const std::int64_t tokens = std::max<std::int64_t>(1, 3000 / (P * r * (n + 1)));
    // Many oscillators over many steps come to more wraps in doubt than are followed.
    return dims(std::min(B, tokens), std::max<std::int64_t>(1, std::min(T, tokens / B)), d, P, r,
                P > 8 ? std::min<std::int64_t>(n, 4) : n);
  });
}

std::vector<std::string> classes(const Case& c, std::int64_t block) {
  std::vector<std::string> all;
  for (const char* symbol : {"n_steps", "P", "r", "d"})
    if (const std::int64_t extent = c.dims.at(symbol); extent < 3) all.push_back(fmt::format("{} {}", symbol, extent));
  if (c.dims.at("n_steps") > 2) all.emplace_back("many steps");
  if (c.dims.at("P") == 16 && c.dims.at("r") == 8) all.emplace_back("P 16 r 8");
  const std::int64_t T = c.dims.at("T");
  all.emplace_back(T == 0           ? "T = 0"
                   : T < block      ? "T short of a block"
                   : T % block == 0 ? "T whole blocks"
                                    : "T ragged");
  return all;
}

std::vector<std::string> required_classes(std::int64_t block) {
  std::vector<std::string> all{"n_steps 0", "n_steps 1", "many steps", "P 1",   "P 2",           "r 1",
                               "r 2",       "d 1",       "P 16 r 8",   "T = 0", "T whole blocks"};
  if (block > 1) all.insert(all.end(), {"T short of a block", "T ragged"});
  return all;
}

oracle::Expected expected(const Problem& problem, DType dtype, const Judged& judged) {
  oracle::kuramoto::Question question{.dtype = dtype,
                                      .inputs = problem.inputs,
                                      .n_steps = static_cast<std::int64_t>(problem.scalars.at("n_steps")),
                                      .dt = problem.scalars.at("dt"),
                                      .damping = problem.scalars.at("damping"),
                                      .cotangent = problem.cotangents.at(0)};
  question.answered_theta = judged.outputs == nullptr || judged.outputs->empty() ? nullptr : &judged.outputs->front();
  question.threads = judged.threads;
  return oracle::kuramoto::expected(question);
}

}  // namespace

const Driver& driver() {
  static const Driver one{
      .contract = &contract(),
      .fills = fill_names(),
      .smooth_fills = smooth_fill_names(),
      .aligned_fills = {"equal"},
      .choice_fill = near_wrap_fill,
      .batch_symbol = "B",
      .growing_symbol = "T",
      .size_symbol = "d",
      .may_be_empty = {"B", "T"},
      .live = dims(1, 128, 1280, 16, 8, 1),
      .live_slice = dims(1, 3, 1280, 16, 8, 1),
      .live_groups = [](std::int64_t groups) { return dims(groups, 12, 1280, 16, 8, 1); },
      .live_float64 = dims(1, 16, 1280, 16, 8, 1),
      .for_threads = dims(2, 16, 1280, 4, 2, 1),  // 40960 elements
      .corners = {dims(3, 19, 65, 16, 8, 2), dims(1, 130, 33, 5, 3, 1), dims(2, 2, 2049, 33, 16, 1),
                  dims(9, 7, 16, 8, 4, 4)},
      .memory_shapes = {dims(1, 256, 16, 4, 2, 1), dims(1, 1024, 16, 4, 2, 1), dims(1, 4096, 16, 4, 2, 1),
                        dims(2, 700, 64, 16, 8, 4), dims(1, 300, 1280, 16, 8, 1)},
      .shapes = shapes,
      .random_shape = random_shape,
      .classes = classes,
      .required_classes = required_classes,
      .fill = fill,
      .expected = expected,
  };
  return one;
}

}  // namespace fractus::kuramoto
