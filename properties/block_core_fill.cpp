#include "properties/block_core_fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <stdexcept>

#include "contracts/block_core.h"
#include "properties/moe_gate_fill.h"
#include "properties/random.h"

namespace fractus::block_core {
namespace {

// Weights are drawn evenly, with the deviation that normal ones would have: the training run has 60 million.
constexpr double even = 1.7320508075688772;

struct Draft {
  Dims dims;
  DType dtype;
  std::map<std::string, Array> tensors;  // by the contract's names, those that the extents ask for
  Scalars scalars;
  double of_out = 1, of_lb = 1;  // the cotangents' sizes

  std::vector<double>& values(const std::string& name) { return tensors.at(name).values; }
  bool low_rank() const { return dims.at("r") > 0; }
  std::int64_t whole(const char* symbol) const { return dims.at(symbol); }
  double root(const char* symbol) const { return std::sqrt(static_cast<double>(dims.at(symbol))); }
  double& h(std::int64_t n, std::int64_t i) { return values("h")[static_cast<std::size_t>(n * dims.at("d") + i)]; }
  std::int64_t tokens() const { return dims.at("B") * dims.at("T"); }
};

void draw(std::vector<double>& values, Random& random, double deviation, double centre = 0) {
  for (double& value : values) value = centre + deviation * random.uniform(-even, even);
}

const std::vector<std::string>& norms() {
  static const std::vector<std::string> names{"norm_attn", "norm_kur", "norm_moe"};
  return names;
}

// A carry as a chunk before this one leaves it: sums over its tokens on the diagonal blocks. What lies beside the
// blocks is nobody's.
void carry(Draft& x, Random& random) {
  const std::int64_t B = x.whole("B"), d = x.whole("d"), D = d / x.whole("n_heads");
  const double tokens = std::exp2(random.uniform(0, 7));
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t p = 0; p < d; ++p) {
      for (std::int64_t c = 0; c < d; ++c)
        x.values("S0")[static_cast<std::size_t>((b * d + p) * d + c)] =
            p / D == c / D ? std::sqrt(tokens) * random.normal() : 1000 * random.normal();
      x.values("z0")[static_cast<std::size_t>(b * d + p)] = tokens * random.uniform(0.3, 2);
    }
}

// Oscillators that a step moves far enough apart for their mean angle to be known well: they start evenly spread, where
// it is nothing at all. Half of the time with a step and a damping that are not the training run's.
void oscillators(Draft& x, Random& random) {
  const double P = static_cast<double>(x.whole("P"));
  draw(x.values("kuramoto.omega"), random, random.uniform(2, 8));
  draw(x.values("kuramoto.coupling_u"), random, std::sqrt(random.uniform(0.5, 3) / (P * x.root("R"))));
  for (double& value : x.values("kuramoto.coupling_lambda")) value = random.sign() * random.uniform(0.4, 1.8);
  if (random.chance(0.5)) return;
  x.scalars["dt"] = std::exp2(random.uniform(-5, -2));
  x.scalars["damping"] = std::exp2(random.uniform(-8, -1.5));
}

void experts(Draft& x, Random& random) {
  const auto weights = [&](const char* name, double deviation) { draw(x.values(name), random, deviation); };
  if (x.low_rank()) {
    weights("moe.V1", 1 / x.root("d"));
    weights("moe.U1", 1 / x.root("r"));
    weights("moe.V2", 1 / x.root("F"));
    weights("moe.U2", 1 / x.root("r"));
    for (const char* name : {"moe.scale1", "moe.scale2"})
      for (double& scale : x.values(name)) scale = random.sign() * std::exp2(random.uniform(-0.5, 0.5));
  } else {
    weights("moe.w1", 1 / x.root("d"));
    weights("moe.w2", 1 / x.root("F"));
  }
  weights("moe.b1", 0.3);
  weights("moe.b2", 0.5);
}

// Parameters as training leaves them: none at the value that it started from.
void ordinary(Draft& x, Random& random) {
  for (double& value : x.values("h")) value = random.normal();
  for (const std::string& norm : norms()) {
    draw(x.values(norm + ".weight"), random, 0.1, 1);
    draw(x.values(norm + ".bias"), random, 0.1);
  }
  draw(x.values("attn.w_qkv"), random, random.uniform(0.5, 1) / x.root("d"));
  draw(x.values("attn.b_qkv"), random, 0.2);
  draw(x.values("attn.level_logits"), random, 0.7);
  draw(x.values("attn.w_out"), random, random.uniform(0.5, 1) / x.root("d"));
  draw(x.values("attn.b_out"), random, 0.1);
  oscillators(x, random);
  experts(x, random);
  carry(x, random);
  x.of_out = std::exp2(random.uniform(-3, 3));
  x.of_lb = std::exp2(random.uniform(-3, 3));
}

void plain_norm(Draft& x, const std::string& norm) {
  std::fill(x.values(norm + ".weight").begin(), x.values(norm + ".weight").end(), 1.0);
  std::fill(x.values(norm + ".bias").begin(), x.values(norm + ".bias").end(), 0.0);
}

void clear(std::vector<double>& values) { std::fill(values.begin(), values.end(), 0.0); }

// A block that has not been trained. The mean that its oscillators start from is nothing but rounding, so one of them
// sits at the wrap at every token.
void fresh(Draft& x, Random& random) {
  ordinary(x, random);
  for (const std::string& norm : norms()) plain_norm(x, norm);
  for (const char* name : {"attn.b_qkv", "attn.b_out", "attn.level_logits", "moe.b1", "moe.b2", "S0", "z0"})
    clear(x.values(name));
  if (!x.low_rank()) return;
  for (const char* name : {"moe.scale1", "moe.scale2"}) std::fill(x.values(name).begin(), x.values(name).end(), 1.0);
}

void scale_rows(Draft& x, Random& random, double low, double high) {
  for (std::int64_t n = 0; n < x.tokens(); ++n) {
    const double scale = std::exp2(random.uniform(low, high)),
                 offset = random.chance(0.5) ? 0 : scale * random.normal();
    for (std::int64_t i = 0; i < x.whole("d"); ++i) x.h(n, i) = offset + scale * x.h(n, i);
  }
}

// Variances around and below LayerNorm's eps of 1e-5, which then decides. The attention adds little, so that the rows
// behind it are as small.
void small_rows(Draft& x, Random& random) {
  ordinary(x, random);
  scale_rows(x, random, -14, -5);
  for (const char* name : {"attn.w_out", "attn.b_out"})
    for (double& value : x.values(name)) value *= 0x1p-9;
}

// Rows that are far from 0, and rows of one number throughout, whose variance is 0.
void offset_rows(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t n = 0; n < x.tokens(); ++n) {
    const double offset = random.sign() * random.uniform(1, 20), spread = random.chance(0.2) ? 0 : 1;
    for (std::int64_t i = 0; i < x.whole("d"); ++i) x.h(n, i) = offset + spread * x.h(n, i);
  }
}

void large_rows(Draft& x, Random& random) {
  ordinary(x, random);
  scale_rows(x, random, 2, 10);
}

// A matrix of 0 but for a few entries in each column, of which no row has many: products round hardly at all, and
// bounds stay close to what is right at any width.
void thin(std::vector<double>& values, std::int64_t rows, std::int64_t columns, Random& random, bool either_way) {
  clear(values);
  if (rows == 0 || columns == 0) return;
  const auto matrices = static_cast<std::int64_t>(values.size()) / (rows * columns);
  for (std::int64_t m = 0; m < matrices; ++m)
    for (std::int64_t k = 0; k < (either_way ? std::max(rows, columns) : columns); ++k)
      for (int i = 0; i < 2; ++i) {
        const std::int64_t r = (k + i * (1 + random.integer(0, rows - 1))) % rows, c = k % columns;
        values[static_cast<std::size_t>((m * rows + r) * columns + c)] = random.sign() * random.uniform(0.4, 1.2);
      }
}

void thin_weights(Draft& x, Random& random) {
  ordinary(x, random);
  const std::int64_t d = x.whole("d"), F = x.whole("F"), r = x.whole("r");
  thin(x.values("attn.w_qkv"), d, d, random, true);
  thin(x.values("attn.w_out"), d, d, random, true);
  if (x.low_rank()) {
    thin(x.values("moe.V1"), d, r, random, false);
    thin(x.values("moe.U1"), F, r, random, true);
    thin(x.values("moe.V2"), F, r, random, false);
    thin(x.values("moe.U2"), d, r, random, true);
  } else {
    thin(x.values("moe.w1"), d, F, random, true);
    thin(x.values("moe.w2"), F, d, random, true);
  }
}

// The attention adds nothing, so what follows starts from exact rows; or the experts add nothing.
void experts_alone(Draft& x, Random& random) {
  ordinary(x, random);
  clear(x.values("attn.w_out"));
  clear(x.values("attn.b_out"));
}
void attention_alone(Draft& x, Random& random) {
  ordinary(x, random);
  clear(x.values(x.low_rank() ? "moe.U2" : "moe.w2"));
  clear(x.values("moe.b2"));
}

// q and k far to either side of 0: features of e^-20 and less, and ones that are all but linear.
void far_features(Draft& x, Random& random) {
  ordinary(x, random);
  for (double& value : x.values("norm_attn.weight")) value *= random.uniform(2, 8);
  for (double& value : x.values("attn.b_qkv")) value *= 10;
}

// Values of q and k beyond the largest number that has an exp in float32.
void beyond_exp(Draft& x, Random& random) {
  ordinary(x, random);
  const std::size_t d = x.values("h").size() / static_cast<std::size_t>(x.tokens());
  std::vector<double>& bias = x.values("attn.b_qkv");
  for (std::size_t i = 0; i < 2 * d; ++i)
    if (random.chance(0.3)) bias[i] = x.dtype == DType::float32 ? random.uniform(90, 120) : random.uniform(720, 900);
}

void zeros_among(Draft& x, Random& random) {
  ordinary(x, random);
  for (std::int64_t n = 0; n < x.tokens(); ++n)
    if (random.chance(0.3))
      for (std::int64_t i = 0; i < x.whole("d"); ++i) x.h(n, i) = random.chance(0.5) ? 0.0 : -0.0;
  for (auto& [name, array] : x.tensors)
    if (name.starts_with("attn.") || name.starts_with("norm_") || name.starts_with("moe."))
      for (double& value : array.values)
        if (random.chance(0.3)) value = 0;
}

void zero_cotangent(Draft& x, Random& random) {
  ordinary(x, random);
  (random.chance(0.5) ? x.of_out : x.of_lb) = 0;
}

// Experts in groups of one more than are chosen, at the same phase or up to two units in the last place apart; half of
// the time behind a fresh norm_kur, whose mean sits at the wrap.
void near_ties(Draft& x, Random& random) {
  ordinary(x, random);
  if (random.chance(0.5)) plain_norm(x, "norm_kur");
  std::vector<double>& mu = x.values("expert_phases");
  const auto group = static_cast<std::size_t>(x.whole("top_k") + 1);
  const double ulp = 8 * unit_roundoff(x.dtype);  // of numbers in [4, 8)
  const bool exact = random.chance(0.5);
  for (std::size_t e = 0; e < mu.size(); ++e) {
    if (e % group == 0) continue;
    mu[e] = mu[e - e % group] + (exact ? 0 : static_cast<double>(random.integer(-2, 2)) * ulp);
  }
}

using Filler = void (*)(Draft&, Random&);
const std::vector<std::pair<std::string, Filler>>& fillers() {
  static const std::vector<std::pair<std::string, Filler>> all{
      // First, since the training run's widths are tried on it alone.
      {"thin_weights", thin_weights},   {"ordinary", ordinary},
      {"small_rows", small_rows},       {"fresh", fresh},
      {"experts_alone", experts_alone}, {"attention_alone", attention_alone},
      {"offset_rows", offset_rows},     {"large_rows", large_rows},
      {"far_features", far_features},   {"beyond_exp", beyond_exp},
      {"zeros_among", zeros_among},     {"zero_cotangent", zero_cotangent},
      {choice_fill_name, near_ties},
  };
  return all;
}

Draft blank(const Case& c) {
  for (const std::string& symbol : contract().dim_symbols) {
    const std::int64_t least = symbol == "r" || symbol == "n_steps" ? 0 : 1;
    if (!c.dims.contains(symbol) || c.dims.at(symbol) < least)
      throw std::invalid_argument(fmt::format("dims: wanted {} of {} or more, got {}", symbol, least,
                                              c.dims.contains(symbol) ? fmt::to_string(c.dims.at(symbol)) : "nothing"));
  }
  // A case that is being shrunk may ask for more heads than the width has, or more experts than there are.
  Dims dims = c.dims;
  while (dims.at("d") % dims.at("n_heads") != 0) --dims.at("n_heads");
  dims.at("top_k") = std::min(dims.at("top_k"), dims.at("E"));
  Draft x{dims, c.dtype, {}, usual_config()};
  for (const TensorSpec& spec : contract().inputs)
    if (belongs(spec, c.dims)) x.tensors[spec.name] = zeros(spec.name, c.dtype, shape_of(spec, c.dims));
  for (const char* name : {"n_heads", "top_k", "n_steps"}) x.scalars[name] = static_cast<double>(dims.at(name));
  return x;
}

// The offsets phi^(-2l), and a table of experts with its steepness, from the gate's own fills.
void buffers(Draft& x, const Case& c) {
  const double phi = (1 + std::sqrt(5.0)) / 2;
  std::vector<double>& offsets = x.values("level_offsets");
  for (std::size_t l = 0; l < offsets.size(); ++l) offsets[l] = std::pow(phi, -2 * static_cast<double>(l));
  Case route = c;
  route.fill = "spread";
  route.cotangents.clear();
  Problem gate = moe_gate::fill(route);
  x.values("expert_phases") = std::move(gate.inputs[1]->values);
  // Steep gates give all to one expert, and no gradient to the angles: mostly as the training run has them.
  if (c.seed % 3 != 0) return;
  for (const char* name : {"kappa", "temperature"}) x.scalars[name] = gate.scalars.at(name);
}

Problem finished(Draft& x, Random& random, const Case& c) {
  Problem problem;
  problem.scalars = std::move(x.scalars);
  Array out = zeros("out", x.dtype, x.tensors.at("h").shape), lb = zeros("lb", x.dtype, {});
  for (double& value : out.values) value = rounded(x.of_out * random.normal(), x.dtype);
  lb.values[0] = rounded(x.of_lb * random.normal(), x.dtype);
  problem.cotangents.resize(contract().outputs.size());
  if (contains(c.cotangents, "out")) problem.cotangents[0] = std::move(out);
  if (contains(c.cotangents, "lb")) problem.cotangents[1] = std::move(lb);
  for (const TensorSpec& spec : contract().inputs) {
    const auto found = x.tensors.find(spec.name);
    const bool present = found != x.tensors.end() && !contains(c.absent, spec.name);
    problem.inputs.push_back(present ? std::optional(std::move(found->second)) : std::nullopt);
    if (!present) continue;
    for (double& value : problem.inputs.back()->values) value = rounded(value, x.dtype);
  }
  return problem;
}

}  // namespace

std::vector<std::string> fill_names() {
  std::vector<std::string> names;
  for (const auto& [name, filler] : fillers()) names.push_back(name);
  return names;
}

std::vector<std::string> smooth_fill_names() {
  std::vector<std::string> names = fill_names();
  std::erase(names, choice_fill_name);
  return names;
}

Problem fill(const Case& c) {
  const auto& all = fillers();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == c.fill; });
  if (found == all.end())
    throw std::invalid_argument(
        fmt::format("fill: '{}' is unknown; wanted one of {}", c.fill, fmt::join(fill_names(), ", ")));
  Draft x = blank(c);
  buffers(x, c);
  Random random(c.seed + 1);  // apart from the gate's own draws
  found->second(x, random);
  return finished(x, random, c);
}

}  // namespace fractus::block_core
