#include "properties/moe_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "contracts/moe.h"
#include "properties/moe_gate_fill.h"
#include "properties/random.h"

namespace fractus::moe {
namespace {

// Weights are drawn evenly, with the deviation that normal ones would have: the training run has 54 million.
constexpr double even = 1.7320508075688772;

struct Draft {
  Dims dims;
  DType dtype;
  std::map<std::string, Array> tensors;  // by the contract's names, those that the extents ask for
  double of_out = 1, of_lb = 1;          // the cotangents' sizes

  std::vector<double>& values(const std::string& name) { return tensors.at(name).values; }
  bool low_rank() const { return dims.at("r") > 0; }
  double extent(const char* symbol) const { return static_cast<double>(dims.at(symbol)); }
};

void draw(std::vector<double>& values, Random& random, double deviation) {
  for (double& value : values) value = deviation * random.uniform(-even, even);
}

// Inner activations and the experts' outputs of about the given deviations, for h of 1.
void experts(Draft& x, Random& random, double inner, double outer) {
  for (double& value : x.values("h")) value = random.normal();
  const double d = std::sqrt(x.extent("d")), F = std::sqrt(x.extent("F"));
  if (x.low_rank()) {
    const double r = std::sqrt(x.extent("r"));
    draw(x.values("V1"), random, 1 / d);
    draw(x.values("U1"), random, inner / r);
    draw(x.values("V2"), random, 1 / F);
    draw(x.values("U2"), random, outer / r);
    // Never 1, which is what a fresh model has.
    for (const char* name : {"scale1", "scale2"})
      for (double& scale : x.values(name)) scale = random.sign() * std::exp2(random.uniform(0.2, 1));
  } else {
    draw(x.values("w1"), random, inner / d);
    draw(x.values("w2"), random, outer / F);
  }
  draw(x.values("b1"), random, inner / 2);
  draw(x.values("b2"), random, outer);
  x.of_out = x.of_lb = std::exp2(random.uniform(-3, 3));
}

void ordinary(Draft& x, Random& random) { experts(x, random, random.uniform(0.5, 1.5), 1); }

// Activations near one point, to either side of 0 where `both`.
void around(Draft& x, Random& random, double centre, double width, bool both) {
  experts(x, random, width, 1);
  for (double& bias : x.values("b1")) bias = (both ? random.sign() : 1) * centre + width * random.normal();
}

// Where the exact form of gelu, and approximations of this one, are furthest from it.
void around_two(Draft& x, Random& random) { around(x, random, random.uniform(1.2, 2.4), 0.3, true); }
// 1 + tanh cancels, down to where the last bit of it is gone.
void tail(Draft& x, Random& random) { around(x, random, -random.uniform(3, 9), 1, false); }
void large(Draft& x, Random& random) { experts(x, random, random.uniform(5, 12), 1); }
void small(Draft& x, Random& random) { experts(x, random, std::exp2(random.uniform(-20, -4)), 1); }

// h, weights and cotangents far from 1, activations ordinary all the same.
void magnitudes(Draft& x, Random& random) {
  experts(x, random, 1, 1);
  const double of_h = std::exp2(static_cast<double>(random.integer(-16, 16))),
               of_outer = std::exp2(static_cast<double>(random.integer(-16, 16)));
  const auto scale = [&](const char* name, double factor) {
    for (double& value : x.values(name)) value *= factor;
  };
  scale("h", of_h);
  scale(x.low_rank() ? "V1" : "w1", 1 / of_h);
  scale(x.low_rank() ? "U2" : "w2", of_outer);
  scale("b2", of_outer);
  x.of_out = std::exp2(static_cast<double>(random.integer(-16, 16)));
}

// Nothing cancels: all roundings may point one way.
void positive(Draft& x, Random& random) {
  experts(x, random, 1, 1);
  for (auto& [name, array] : x.tensors)
    if (name != "phases" && name != "expert_phases")
      for (double& value : array.values) value = std::fabs(value);
  const double terms = std::sqrt(x.extent("d"));  // so that activations stay of order 1
  for (double& value : x.values("h")) value /= terms;
}

// Rows of h, whole tensors or most entries are 0.
void zeros_in(Draft& x, Random& random) {
  experts(x, random, 1, 1);
  const std::int64_t kind = random.integer(0, 3);
  const auto clear = [](std::vector<double>& values) { std::fill(values.begin(), values.end(), 0.0); };
  if (kind == 0) clear(x.values("h"));
  if (kind == 1) {
    clear(x.values("b1"));
    clear(x.values("b2"));
  }
  if (kind == 2) clear(x.values(x.low_rank() ? "U1" : "w1"));
  if (kind == 3)
    for (auto& [name, array] : x.tensors)
      if (name != "phases" && name != "expert_phases")
        for (double& value : array.values)
          if (random.chance(0.7)) value = random.chance(0.5) ? 0.0 : -0.0;
}

void zero_cotangent(Draft& x, Random& random) {
  ordinary(x, random);
  (random.chance(0.5) ? x.of_out : x.of_lb) = 0;
}

// A distribution of the experts over one of the gate's.
struct Kind {
  std::string name, gate;
  void (*experts)(Draft&, Random&);
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"ordinary", "spread", ordinary},
      {"together", "together", ordinary},  // oscillators that agree: gates far apart, and tokens near each other
      {"around_two", "together", around_two},
      {"tail", "spread", tail},
      {"one_route", "all_equal", ordinary},
      {"any_experts", "any_experts", ordinary},
      {"steep", "steep", ordinary},
      {"large", "spread", large},
      {"small", "together", small},
      {"magnitudes", "together", magnitudes},
      {"positive", "spread", positive},
      {"zeros", "spread", zeros_in},
      {"zero_cotangent", "spread", zero_cotangent},
      {"near_ties", "midpoints", ordinary},
  };
  return all;
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols) {
    const std::int64_t least = symbol == "r" ? 0 : 1;
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < least)
      throw std::invalid_argument(fmt::format("dims: wanted {} of {} or more, got {}", symbol, least,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  }
  Draft x{c.dims, c.dtype, {}};
  for (const TensorSpec& spec : contract().inputs)
    if (belongs(spec, c.dims)) x.tensors[spec.name] = zeros(spec.name, c.dtype, shape_of(spec, c.dims));
  return x;
}

// All tokens at the first one's phases, and only that: a chunk whose experts are the same few.
void route_all_as_first(Draft& x) {
  std::vector<double>& phases = x.values("phases");
  const auto P = static_cast<std::size_t>(x.dims.at("P"));
  for (std::size_t i = P; i < phases.size(); ++i) phases[i] = phases[i % P];
}

Problem finished(Draft& x, Random& random, const Case& c, Scalars scalars) {
  Problem problem;
  problem.scalars = std::move(scalars);
  Array out = zeros("out", x.dtype, x.tensors.at("h").shape), lb = zeros("lb", x.dtype, {});
  for (double& value : out.values) value = rounded(x.of_out * random.normal(), x.dtype);
  lb.values[0] = rounded(x.of_lb * random.normal(), x.dtype);
  const auto wanted = [&](Array& array) {
    return contains(c.cotangents, array.name) ? std::optional(std::move(array)) : std::nullopt;
  };
  problem.cotangents.push_back(wanted(out));
  problem.cotangents.push_back(wanted(lb));
  for (const TensorSpec& spec : contract().inputs) {
    const auto found = x.tensors.find(spec.name);
    problem.inputs.push_back(found == x.tensors.end() ? std::nullopt : std::optional(std::move(found->second)));
    if (!problem.inputs.back()) continue;
    for (double& value : problem.inputs.back()->values) value = rounded(value, x.dtype);
  }
  return problem;
}

}  // namespace

const std::vector<std::string>& smooth_fill_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Kind& kind : kinds())
      if (kind.name != "near_ties") list.push_back(kind.name);
    return list;
  }();
  return names;
}

std::vector<std::string> fill_names() {
  std::vector<std::string> names = smooth_fill_names();
  names.emplace_back("near_ties");
  return names;
}

Problem fill(const Case& c) {
  const auto kind = std::find_if(kinds().begin(), kinds().end(), [&](const Kind& k) { return k.name == c.fill; });
  if (kind == kinds().end())
    throw std::invalid_argument(
        fmt::format("fill: '{}' is unknown; wanted one of {}", c.fill, fmt::join(fill_names(), ", ")));
  Draft x = blank(c);
  Case routes = c;
  routes.fill = kind->gate;
  routes.cotangents.clear();
  Problem gate = moe_gate::fill(routes);
  x.values("phases") = std::move(gate.inputs[0]->values);
  x.values("expert_phases") = std::move(gate.inputs[1]->values);
  Random random(c.seed + 1);  // apart from the gate's own draws
  kind->experts(x, random);
  if (kind->name == "one_route") route_all_as_first(x);
  return finished(x, random, c, std::move(gate.scalars));
}

}  // namespace fractus::moe
