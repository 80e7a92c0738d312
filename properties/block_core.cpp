// The driver of the block: its shapes, its fills, its definition.
#include "contracts/block_core.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "contracts/moe_gate.h"
#include "oracle/block_core_expected.h"
#include "properties/block_core_fill.h"
#include "properties/driver.h"
#include "properties/gating.h"

namespace fractus::block_core {
namespace {

struct Extents {
  std::int64_t B = 1, T = 5, H = 2, D = 4, L = 2, P = 8, R = 3, E = 5, F = 7, r = 2, top_k = 2, n_steps = 1;
};

Dims dims(const Extents& x) {
  return {{"B", x.B}, {"T", x.T}, {"d", x.H * x.D}, {"L", x.L},       {"P", x.P},         {"R", x.R},
          {"E", x.E}, {"F", x.F}, {"r", x.r},       {"n_heads", x.H}, {"top_k", x.top_k}, {"n_steps", x.n_steps}};
}

// Levels, heads and their widths, tokens around the block's borders; dense experts and ones of low rank, few and many
// of them; one token, one oscillator, one expert.
std::vector<Dims> shapes(std::int64_t block) {
  std::vector<Dims> list;
  for (const Extents& x :
       std::vector<Extents>{{.B = 2, .T = 6, .H = 4},
                            {.T = 9, .L = 3, .r = 0},
                            {.T = 1, .H = 1, .D = 8},
                            {.B = 2, .T = 3, .H = 20, .D = 2, .L = 1},
                            {.T = 7, .H = 1, .D = 1, .P = 16, .R = 8},
                            {.B = 3, .T = 1, .L = 1, .E = 1, .r = 0, .top_k = 1},
                            {.T = 4, .D = 6, .P = 16, .R = 8, .E = 128, .F = 5, .top_k = 2},
                            {.T = 12, .D = 8, .L = 3, .P = 16, .E = 4, .F = 12, .r = 3},
                            {.T = 5, .H = 3, .D = 5, .E = 4, .r = 0, .top_k = 4, .n_steps = 2},
                            {.B = 2, .T = 8, .D = 7, .L = 1, .P = 3, .R = 1, .E = 9, .F = 16, .r = 5, .top_k = 3},
                            {.T = 33, .H = 4, .D = 8, .P = 16, .R = 8, .E = 8, .F = 24, .r = 6},
                            {.T = 2, .H = 1, .D = 33, .L = 2, .E = 3, .F = 9, .r = 1, .n_steps = 4},
                            {.T = 3, .D = 2, .L = 4, .E = 3, .F = 4},
                            {.T = 4, .H = 1, .D = 3, .L = 6, .E = 3, .F = 4, .r = 0},
                            {.T = 16, .H = 5, .D = 3, .P = 2, .R = 2, .E = 6, .F = 8, .r = 0, .top_k = 1}})
    list.push_back(dims(x));
  for (const std::int64_t T : {block - 1, block, block + 1, 2 * block + 1})
    if (T > 0) list.push_back(dims({.T = T, .D = 3, .L = 1 + T % 3, .P = 4, .r = T % 2}));
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange, rc::gen::element;
  const auto border = inRange<std::int64_t>(std::max<std::int64_t>(1, block - 2), block + 3);
  const auto tokens = rc::gen::weightedOneOf<std::int64_t>({{10, inRange<std::int64_t>(1, 14)}, {1, border}});
  const auto heads = element<std::int64_t>(1, 2, 2, 3, 4, 5), width = element<std::int64_t>(1, 2, 3, 4, 4, 5, 8);
  const auto levels = element<std::int64_t>(1, 2, 2, 3, 4, 5);
  const auto oscillators = rc::gen::pair(element<std::int64_t>(16, 8, 4, 2, 3), element<std::int64_t>(1, 2, 3, 8));
  const auto experts =
      rc::gen::weightedOneOf<std::int64_t>({{8, inRange<std::int64_t>(1, 12)}, {1, element<std::int64_t>(32, 128)}});
  const auto inner = rc::gen::pair(inRange<std::int64_t>(1, 13), element<std::int64_t>(0, 0, 1, 2, 3, 5));
  const auto chosen = rc::gen::weightedElement<std::int64_t>({{5, 2}, {2, 1}, {2, 3}});
  const auto steps = rc::gen::weightedElement<std::int64_t>({{6, 1}, {1, 2}, {1, 3}});
  return rc::gen::map(rc::gen::tuple(rc::gen::pair(inRange<std::int64_t>(1, 4), tokens), rc::gen::pair(heads, width),
                                     levels, oscillators, experts, inner, rc::gen::pair(chosen, steps)),
                      [](const auto& draw) {
                        const auto& [rows, head, L, waves, E, of_expert, rest] = draw;
                        return dims({.B = rows.second > 14 ? 1 : rows.first,
                                     .T = rows.second,
                                     .H = head.first,
                                     .D = head.second,
                                     .L = L,
                                     .P = waves.first,
                                     .R = waves.second,
                                     .E = E,
                                     .F = of_expert.first,
                                     .r = of_expert.second,
                                     .top_k = std::min(rest.first, E),
                                     .n_steps = rest.second});
                      });
}

std::vector<std::string> classes(const Case& c, std::int64_t) {
  const auto is = [&](const char* symbol, std::int64_t extent) { return c.dims.at(symbol) == extent; };
  std::vector<std::string> all;
  for (const std::int64_t L : {1, 2, 3})
    if (is("L", L)) all.push_back("L " + std::to_string(L));
  for (const std::int64_t H : {1, 4, 20})
    if (is("n_heads", H)) all.push_back("heads " + std::to_string(H));
  all.emplace_back(is("T", 1) ? "one token" : "several tokens");
  all.emplace_back(is("r", 0) ? "dense experts" : "experts of low rank");
  if (c.dims.at("B") > 1) all.emplace_back("several sequences");
  const bool carried = !contains(c.absent, "S0") && !contains(c.absent, "z0") && c.fill != "fresh";
  all.emplace_back(carried ? "a chunk that continues one" : "without a carry");
  return all;
}

std::vector<std::string> required_classes(std::int64_t) {
  return {"L 1",
          "L 2",
          "L 3",
          "heads 1",
          "heads 4",
          "heads 20",
          "one token",
          "several tokens",
          "dense experts",
          "experts of low rank",
          "several sequences",
          "a chunk that continues one",
          "without a carry"};
}

Problem with_tokens(Problem problem, std::int64_t T) {
  const auto resized = [T](std::optional<Array>& array) {
    if (!array || array->shape.size() != 3) return;
    array->shape[1] = T;
    array->values.assign(static_cast<std::size_t>(element_count(array->shape)), 0.0);
  };
  resized(problem.inputs[0]);
  for (auto& cotangent : problem.cotangents) resized(cotangent);
  return problem;
}

// What a form may make of no tokens without an exception: a mean over them that is NaN, and the carry as it came, but
// for the mean over levels. Given is the answer for one token.
oracle::Expected of_no_tokens(oracle::Expected expected, const Problem& spoiled) {
  const auto empty = [](oracle::ExpectedTensor& tensor) {
    tensor.shape[1] = 0;
    for (std::vector<double>* list : {&tensor.value, &tensor.remainder, &tensor.tolerance}) list->clear();
  };
  const auto open = [](oracle::ExpectedTensor& tensor) {
    std::fill(tensor.value.begin(), tensor.value.end(), std::numeric_limits<double>::quiet_NaN());
    std::fill(tensor.tolerance.begin(), tensor.tolerance.end(), std::numeric_limits<double>::infinity());
  };
  empty(expected.outputs[0]);
  open(expected.outputs[1]);
  empty(expected.outputs[4]);
  const std::int64_t d = spoiled.inputs[0]->shape[2], D = d / static_cast<std::int64_t>(spoiled.scalars.at("n_heads"));
  const double levels = static_cast<double>(spoiled.inputs[7]->values.size());
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& carried = spoiled.inputs[1 + i];
    oracle::ExpectedTensor& tensor = expected.outputs[2 + i];
    std::fill(tensor.remainder.begin(), tensor.remainder.end(), 0.0);
    for (std::size_t at = 0; at < tensor.value.size(); ++at) {
      const auto flat = static_cast<std::int64_t>(at);
      const bool held = carried.has_value() && (i == 1 || flat / d % d / D == flat % d / D);
      tensor.value[at] = held ? carried->values[at] : 0;
      tensor.tolerance[at] = (levels + 3) * unit_roundoff(expected.dtype) * std::fabs(tensor.value[at]);
    }
  }
  for (auto& gradient : expected.gradients)
    if (gradient && gradient->name == "dh")
      empty(*gradient);
    else if (gradient)
      open(*gradient);
  return expected;
}

std::vector<Violation> violations() {
  return {
      {.name = "no_tokens",
       .text = "T = 0",
       .spoiled = [](Problem problem, std::uint64_t) { return with_tokens(std::move(problem), 0); },
       .same_as = [](Problem problem) { return with_tokens(std::move(problem), 1); },
       .restored = of_no_tokens,
       .allowed = "answered with an lb of NaN, which shows, and the carry as it came",
       .may_be_nan = true},
      gating::temperature_0(),
      {.name = "heads_beyond_d",
       .text = "n_heads of d + 1",
       .spoiled =
           spoiled_scalar("n_heads", [](const Problem& p) { return static_cast<double>(p.inputs[0]->shape[2] + 1); })},
  };
}

oracle::Expected expected(const Problem& problem, DType dtype, const Judged& judged) {
  return oracle::block_core::expected({.dtype = dtype,
                                       .inputs = problem.inputs,
                                       .scalars = problem.scalars,
                                       .cotangents = problem.cotangents,
                                       .answered = judged.outputs,
                                       .threads = judged.threads});
}

constexpr Extents training_run{.T = 128, .H = 20, .D = 64, .P = 16, .R = 8, .E = 128, .F = 2048, .r = 64};

}  // namespace

const Driver& driver() {
  static const Driver one{
      .contract = &contract(),
      .fills = fill_names(),
      .smooth_fills = smooth_fill_names(),
      .choice_fill = choice_fill_name,
      .choices_settled = true,
      .growing_symbol = "T",
      .size_symbol = "d",
      .live = dims(training_run),
      .live_slice = dims({.T = 3, .H = 2, .D = 64, .P = 16, .R = 8, .E = 5, .F = 48, .r = 4}),
      // Its chunk and head, with as many heads.
      .live_groups =
          [](std::int64_t groups) {
            return dims({.T = 128, .H = groups, .D = 64, .P = 16, .R = 8, .E = 8, .F = 256, .r = 16});
          },
      .live_float64 = dims({.T = 128, .H = 2, .D = 64, .P = 16, .R = 8, .E = 8, .F = 128, .r = 16}),
      .for_threads =
          dims({.B = 2, .T = 260, .H = 4, .D = 16, .L = 1, .P = 4, .R = 2, .E = 3, .F = 8}),  // 33280 elements
      .corners = {dims({.B = 3, .T = 19, .H = 5, .D = 13, .L = 3, .P = 16, .R = 8, .E = 8, .F = 33, .r = 7}),
                  dims({.T = 130, .H = 3, .D = 11, .P = 5, .E = 3, .F = 65, .r = 0}),
                  dims({.B = 2, .T = 2, .H = 4, .D = 64, .P = 33, .R = 16, .E = 17, .F = 129, .r = 16, .top_k = 1}),
                  dims({.B = 5, .T = 7, .H = 4, .D = 4, .E = 100, .F = 20, .r = 0, .top_k = 4})},
      .memory_shapes = {dims({.T = 64, .H = 2, .D = 8, .E = 8, .F = 24, .r = 0}),
                        dims({.T = 256, .H = 2, .D = 8, .E = 8, .F = 24, .r = 4}),
                        dims({.B = 2, .T = 128, .H = 2, .D = 16, .E = 4, .F = 16, .r = 0}),
                        dims({.T = 64, .H = 1, .D = 64, .P = 16, .E = 32, .F = 48, .r = 8})},
      .violations = violations(),
      .shapes = shapes,
      .random_shape = random_shape,
      .classes = classes,
      .required_classes = required_classes,
      .fill = fill,
      .expected = expected,
  };
  return one;
}

}  // namespace fractus::block_core
