// The tolerance of the block: no right form is refused, and every fault of shared/mutants/block_core.py is; values and
// radii against 50 digits; what carries an error covers all that it may be.
#include "contracts/block_core.h"

#include <fmt/format.h>

#include <random>

#include "oracle/block_core_expected.h"
#include "oracle/companion_layer_norm.h"
#include "oracle/exact.h"
#include "oracle/feature_map.h"
#include "tests/oracle/block_core_forms.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::block_core {
namespace {

class Values {
 public:
  explicit Values(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  double about(double size) { return uniform(-size, size) * 1.7; }
  bool chance(double p) { return uniform(0, 1) < p; }

 private:
  std::mt19937_64 engine_;
};

// Some sizes, and rows of small variance, large or ordinary.
Question made(std::uint64_t seed, DType dtype, double row_size = 1) {
  Values values(seed);
  const auto pick = [&](std::initializer_list<std::int64_t> of) {
    return of.begin()[static_cast<std::size_t>(values.uniform(0, static_cast<double>(of.size())))];
  };
  const std::int64_t H = pick({1, 2, 3}), D = pick({1, 2, 4}), E = pick({3, 5, 8});
  const Dims dims{{"B", pick({1, 2})},    {"T", pick({1, 3, 5})}, {"d", H * D}, {"L", pick({1, 2, 3})},
                  {"P", pick({3, 4, 8})}, {"R", pick({1, 3})},    {"E", E},     {"F", pick({3, 6})},
                  {"r", pick({0, 2})},    {"n_heads", H},         {"top_k", 2}, {"n_steps", pick({1, 2})}};
  Question question{.dtype = dtype, .inputs = {}, .scalars = fractus::block_core::usual_config(), .cotangents = {}};
  for (const char* name : {"n_heads", "top_k", "n_steps"}) question.scalars[name] = static_cast<double>(dims.at(name));
  const std::map<std::string, std::pair<double, double>> about{
      {"norm_attn.weight", {0.2, 1}}, {"norm_kur.weight", {0.2, 1}},
      {"norm_moe.weight", {0.2, 1}},  {"h", {row_size, 0}},
      {"kuramoto.omega", {6, 0}},     {"kuramoto.coupling_u", {0.5, 0}},
      {"moe.scale1", {0.3, 1}},       {"z0", {0.5, 3}},
      {"moe.scale2", {0.3, 1}},       {"expert_phases", {1.7, 0}}};
  for (const TensorSpec& spec : fractus::block_core::contract().inputs) {
    const bool carried = spec.name != "S0" && spec.name != "z0";
    if (!belongs(spec, dims) || (!carried && seed % 4 == 0)) {
      question.inputs.push_back(std::nullopt);
      continue;
    }
    Array array = zeros(spec.name, dtype, shape_of(spec, dims));
    const auto found = about.find(spec.name);
    const auto [size, centre] = found == about.end() ? std::pair(0.6, 0.0) : found->second;
    for (double& x : array.values) x = rounded(centre + values.about(size), dtype);
    if (spec.name == "level_offsets")
      for (std::size_t l = 0; l < array.values.size(); ++l)
        array.values[l] = rounded(std::pow(0.3819660112501051, static_cast<double>(l)), dtype);
    question.inputs.push_back(std::move(array));
  }
  question.cotangents.resize(5);
  question.cotangents[0] = zeros("out", dtype, question.inputs[0]->shape);
  question.cotangents[1] = zeros("lb", dtype, {});
  for (std::size_t i = 0; i < 2; ++i)
    for (double& x : question.cotangents[i]->values) x = rounded(values.about(1), dtype);
  return question;
}

// A form's answer, rounded to the judged type once.
struct Answered {
  std::vector<Array> outputs;
  std::map<std::string, std::vector<double>> gradients;
};
template <class R>
Answered answered(const Question& question, const Form& form) {
  const Evaluated<R> run = Plain<R>(question, form).run();
  const auto stored = [&](const char* name, const std::vector<R>& values) {
    Array array{name, question.dtype, {static_cast<std::int64_t>(values.size())}, {}};
    for (const R& x : values) array.values.push_back(rounded(static_cast<double>(x), question.dtype));
    return array;
  };
  Answered answer{{stored("out", run.out), stored("lb", {run.lb}), stored("S", run.S), stored("z", run.z),
                   stored("theta", run.theta)},
                  {}};
  for (const auto& [name, gradient] : run.gradients) answer.gradients[name] = stored("", gradient).values;
  return answer;
}

struct Tally {
  std::size_t elements = 0, undecidable = 0;
  double ratio = 0;
  std::string different;  // the first such element
};

void judge_all(const ExpectedTensor& expected, double radius, const std::vector<double>& got, Tally& tally) {
  for (std::size_t i = 0; i < expected.value.size(); ++i) {
    const Judgement judgement = judge(expected, radius, i, got.at(i));
    ++tally.elements;
    tally.undecidable += judgement.verdict == Verdict::undecidable;
    if (judgement.verdict == Verdict::equal) tally.ratio = std::max(tally.ratio, judgement.ratio);
    if (judgement.verdict == Verdict::different && tally.different.empty())
      tally.different = fmt::format("{}[{}]: {} where {} is right within {}", expected.name, i, got[i],
                                    expected.value[i], expected.tolerance[i]);
  }
}

Tally judged(Question question, const Answered& answer) {
  question.answered = &answer.outputs;
  const Expected all = expected(question);
  Tally tally;
  for (std::size_t i = 0; i < all.outputs.size(); ++i)
    judge_all(all.outputs[i], all.radius_per_tolerance, answer.outputs[i].values, tally);
  for (std::size_t i = 0; i < all.gradients.size(); ++i)
    if (all.gradients[i])
      judge_all(*all.gradients[i], all.radius_per_tolerance, answer.gradients.at(question.inputs[i]->name), tally);
  return tally;
}

const std::vector<Form>& right_forms() {
  static const std::vector<Form> forms{
      {}, {.backwards = true}, {.root_first = true, .exact_exp = true}, {.backwards = true, .mix_last = true}};
  return forms;
}

std::uint64_t seed() { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30)); }
double row_size() { return *rc::gen::element(1.0, 0.01, 0.001, 30.0); }

// Protects: no right form is refused, gradients by autograd included, in either dtype or in double and rounded once;
// and what is undecidable is little.
TEST(BlockCore, RightFormsAreInside) {
  Tally all;
  EXPECT_TRUE(holds(60, [&]() -> std::string {
    const std::uint64_t s = seed();
    const double size = row_size();
    for (const Form& form : right_forms()) {
      const Question single = made(s, DType::float32, size), wide = made(s, DType::float64, size);
      for (const Tally& tally :
           {judged(single, answered<float>(single, form)), judged(single, answered<double>(single, form)),
            judged(wide, answered<double>(wide, form))}) {
        if (!tally.different.empty()) return tally.different;
        all.elements += tally.elements;
        all.undecidable += tally.undecidable;
        all.ratio = std::max(all.ratio, tally.ratio);
      }
    }
    return "";
  }));
  RecordProperty("worst_ratio", fmt::format("{:.3f}", all.ratio));
  EXPECT_LT(static_cast<double>(all.undecidable), 0.05 * static_cast<double>(all.elements));
}

// Protects: the value and its radius. The truth is the definition in 50 digits, routed by the angles that the form has
// returned, as the expected values are.
TEST(BlockCore, ValuesAreWithinTheirRadius) {
  int compared = 0;
  EXPECT_TRUE(holds(25, [&]() -> std::string {
    const DType dtype = *rc::gen::element(DType::float32, DType::float64);
    Question question = made(seed(), dtype, row_size());
    const Answered answer = answered<double>(question, {});
    question.answered = &answer.outputs;
    const Expected all = expected(question);
    if (all.choices_in_doubt > 0) return "";
    ++compared;
    const Evaluated<Float50> truth = Plain<Float50>(question, {.angles = &answer.outputs[4]}).run();
    std::string wrong;
    const auto compare = [&](const ExpectedTensor& tensor, const std::vector<Float50>& values) {
      for (std::size_t i = 0; i < tensor.value.size(); ++i) {
        if (!std::isfinite(tensor.tolerance[i])) continue;
        Float50 off = values.at(i) - Float50(tensor.value[i]);
        if (!tensor.remainder.empty()) off -= Float50(tensor.remainder[i]);
        const double slack = dtype == DType::float32 ? std::fabs(tensor.value[i]) * 0x1p-52 : 0;
        if (abs(off) > Float50(tensor.tolerance[i] * all.radius_per_tolerance + slack + 1e-300) && wrong.empty())
          wrong = fmt::format("{}[{}]: off by {}, radius {}", tensor.name, i, static_cast<double>(off),
                              tensor.tolerance[i] * all.radius_per_tolerance);
      }
    };
    const std::vector<Float50> lb{truth.lb};
    const std::vector<Float50>* outputs[] = {&truth.out, &lb, &truth.S, &truth.z};
    for (std::size_t i = 0; i < 4; ++i) compare(all.outputs[i], *outputs[i]);
    for (std::size_t i = 0; i < all.gradients.size(); ++i)
      if (all.gradients[i]) compare(*all.gradients[i], truth.gradients.at(question.inputs[i]->name));
    return wrong;
  }));
  EXPECT_GT(compared, 15);
}

// Protects: each fault is refused where it shows, in float32 by outputs or, at the latest, in float64 by gradients.
TEST(BlockCore, FaultsAreOutside) {
  for (const char* fault : {"routed_by_first_token", "routed_per_token", "carry_summed_over_levels",
                            "carry_of_level_zero", "level_offset_on_v", "offsets_phi_not_squared", "layernorm_eps_1e_6",
                            "moe_norm_before_attention", "theta_without_norm", "state_stored_transposed"}) {
    int refused = 0;
    for (std::uint64_t s = 1; s <= 12; ++s) {
      const Question question = made(s, DType::float64, s % 2 == 0 ? 1 : 0.01);
      Form form;
      form.fault = fault;
      refused += !judged(question, answered<double>(question, form)).different.empty();
    }
    EXPECT_GT(refused, 2) << fault;
  }
}

using R = Companion<DType::float32>;

Row<R> row_of(const std::vector<double>& v, const std::vector<double>& e) {
  Row<R> row(v.size());
  for (std::size_t i = 0; i < v.size(); ++i)
    row.set(i, {v[i], std::fabs(v[i]), 0, e.empty() ? 0 : e[i], std::fabs(v[i])});
  return row;
}

// LayerNorm in float of numbers that may be off: two passes, or Welford's recurrence.
std::vector<float> normed(const std::vector<float>& x, const std::vector<double>& weight,
                          const std::vector<double>& bias, bool welford, bool reciprocal) {
  const auto d = static_cast<float>(x.size());
  float mean = 0, square = 0;
  if (welford) {
    float count = 0;
    for (const float one : x) {
      const float before = one - mean;
      mean += before / ++count;
      square += before * (one - mean);
    }
  } else {
    for (const float one : x) mean += one;
    mean /= d;
    for (const float one : x) square += (one - mean) * (one - mean);
  }
  const float root = std::sqrt(square / d + 1e-5F);
  std::vector<float> y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float hat = reciprocal ? x[i] * (1 / root) - mean * (1 / root) : (x[i] - mean) / root;
    y.push_back(hat * static_cast<float>(weight[i]) + static_cast<float>(bias[i]));
  }
  return y;
}

// Protects: LayerNorm's bound covers its forms over every row that the errors allow, for the rows and for the mean that
// the oscillators take; and it is what the errors make of it, not more than a few times what is seen.
TEST(BlockCore, LayerNormCoversItsInterval) {
  double widest = 0, worst_mean = 0;
  EXPECT_TRUE(holds(400, [&]() -> std::string {
    Values values(seed());
    const auto d = static_cast<std::size_t>(values.uniform(1, 40));
    const double size = std::exp2(values.uniform(-12, 6)), offset = values.chance(0.5) ? 0 : values.about(4 * size);
    const double share = values.chance(0.3) ? 0 : std::exp2(values.uniform(-20, -5));
    std::vector<double> x(d), e(d), weight(d), bias(d);
    for (std::size_t i = 0; i < d; ++i) {
      x[i] = offset + values.about(size);
      e[i] = share * std::fabs(values.about(size));
      weight[i] = rounded(1 + values.about(0.3), DType::float32);
      bias[i] = rounded(values.about(0.3), DType::float32);
    }
    const Normed<R> bound = layer_norm(row_of(x, e), row_of(weight, {}), row_of(bias, {}));
    for (int k = 0; k < 6; ++k) {
      std::vector<float> moved;
      for (std::size_t i = 0; i < d; ++i) {
        const double to = k == 0   ? 1
                          : k == 1 ? (i % 2 == 0 ? 1 : -1)
                          : k == 2 ? (x[i] > offset ? 1 : -1)
                                   : values.uniform(-1, 1);
        const double room = e[i] - std::fabs(x[i]) * 0x1p-24;  // of which the rounding to float takes some
        moved.push_back(static_cast<float>(x[i] + to * std::max(0.0, room)));
        if (room < 0) moved.back() = static_cast<float>(x[i]);
      }
      // Without an error to hide it in, the row is the rounded one itself.
      Normed<R> its = bound;
      if (share == 0) {
        std::vector<double> exact(moved.begin(), moved.end());
        its = layer_norm(row_of(exact, {}), row_of(weight, {}), row_of(bias, {}));
      } else if (*std::min_element(e.begin(), e.end()) < (std::fabs(offset) + 2 * size) * 0x1p-23) {
        continue;
      }
      const std::vector<float> y = normed(moved, weight, bias, k % 2 == 1, k % 3 == 1);
      double mean = 0;
      for (std::size_t i = 0; i < d; ++i) {
        const double off = std::fabs(static_cast<double>(y[i]) - static_cast<double>(its.y.v[i])),
                     most = error(its.y.get(i));
        if (off > most) return fmt::format("row {}: off by {}, bound {}", i, off, most);
        widest = std::max(widest, off / most);
        mean += y[i];
      }
      const double off = std::fabs(mean / static_cast<double>(d) - static_cast<double>(its.mean_y.v));
      if (off > error(its.mean_y)) return fmt::format("mean: off by {}, bound {}", off, error(its.mean_y));
      worst_mean = std::max(worst_mean, off / error(its.mean_y));
    }
    return "";
  }));
  EXPECT_GT(widest, 0.3) << "a third of the bound would be refused: it is no wider than it has to be";
  EXPECT_GT(worst_mean, 0.3);
}

// The adjoint in float without ever centring x, as torch's layer_norm has it, or as autograd has it of the definition.
std::vector<float> normed_adjoint(const std::vector<float>& x, const std::vector<double>& weight,
                                  const std::vector<float>& g, bool centred) {
  const auto d = static_cast<float>(x.size());
  float mean = 0, square = 0, of_x = 0, of_one = 0;
  for (const float one : x) mean += one;
  mean /= d;
  for (const float one : x) square += (one - mean) * (one - mean);
  const float r = 1 / std::sqrt(square / d + 1e-5F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float a = g[i] * static_cast<float>(weight[i]);
    of_x += a * (centred ? (x[i] - mean) * r : x[i]);
    of_one += a;
  }
  std::vector<float> dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float a = g[i] * static_cast<float>(weight[i]), b = (of_one * mean - of_x) * r * r * r / d,
                c = -b * mean - of_one * r / d;
    dx.push_back(centred ? r * (a - of_one / d - (x[i] - mean) * r * of_x / d) : r * a + b * x[i] + c);
  }
  return dx;
}

// Protects: LayerNorm's adjoint is inside for a kernel that centres x and for one that does not, where rows are far
// from 0 too. Room for the second is needed: without it that one is outside of some; and a kernel that leaves out the
// term of the variance is outside wherever rows are not far from 0.
TEST(BlockCore, LayerNormAdjointCoversBothForms) {
  int near = 0, without_variance = 0;
  EXPECT_TRUE(holds(300, [&]() -> std::string {
    Values values(seed());
    const auto d = static_cast<std::size_t>(values.uniform(2, 40));
    const double offset = values.chance(0.5) ? 0 : values.about(40), size = std::exp2(values.uniform(-4, 4));
    std::vector<double> x(d), weight(d), g(d);
    double mean = 0;
    for (std::size_t i = 0; i < d; ++i) {
      x[i] = rounded(offset + values.about(size), DType::float32);
      weight[i] = rounded(1 + values.about(0.3), DType::float32);
      g[i] = rounded(values.about(1), DType::float32);
      mean += g[i] * weight[i] / static_cast<double>(d);
    }
    const Normed<R> normed = layer_norm(row_of(x, {}), row_of(weight, {}), row_of(weight, {}));
    const Row<R> bound = layer_norm_adjoint(normed, row_of(weight, {}), row_of(g, {})).x;
    bool faulty_outside = false;
    for (const bool centred : {true, false}) {
      const std::vector<float> dx = normed_adjoint({x.begin(), x.end()}, weight, {g.begin(), g.end()}, centred);
      for (std::size_t i = 0; i < d; ++i) {
        const double off = std::fabs(static_cast<double>(dx[i]) - static_cast<double>(bound.v[i]));
        const double most = error(bound.get(i));
        if (off > most) return fmt::format("off by {}, bound {}, {}", off, most, centred ? "centred" : "as it is");
        const double faulty = static_cast<double>(normed.reciprocal.v) * (g[i] * weight[i] - mean);
        faulty_outside = faulty_outside || std::fabs(faulty - static_cast<double>(bound.v[i])) > most;
      }
    }
    near += offset == 0;
    without_variance += offset == 0 && faulty_outside;
    return "";
  }));
  EXPECT_GT(near, 100);
  EXPECT_EQ(without_variance, near);
}

// Protects: the feature map's bound covers exp in both forms over the whole interval, across 0 too, its slope likewise;
// half of the bound does not.
TEST(BlockCore, FeatureCoversItsInterval) {
  double widest = 0, widest_slope = 0;
  for (double v : {-60.0, -20.0, -3.0, -0.5, -1e-3, 0.0, 1e-6, 0.4, 7.0, 85.0})
    for (double e : {0.0, 1e-6, 1e-3, 0.3, 2.0}) {
      const double x = rounded(v, DType::float32);
      const Feature<R> bound = feature(R(x, std::fabs(x), 0, e, std::fabs(x)));
      for (double to = -1; to <= 1; to += 0.125) {
        const auto moved = e == 0 ? static_cast<float>(x) : static_cast<float>(x + to * (e - std::fabs(x) * 0x1p-24));
        if (std::fabs(static_cast<double>(moved) - x) > e) continue;
        const float power = std::exp(std::min(moved, 0.0F));
        for (const float value : {moved > 0 ? moved + 1 : power, moved > 0 ? moved + 1 : (power - 1) + 1,
                                  moved > 0 ? moved + 1 : std::expm1(moved) + 1}) {
          const double off = std::fabs(static_cast<double>(value) - static_cast<double>(bound.value.v));
          EXPECT_LE(off, error(bound.value)) << v << " " << e << " " << moved;
          widest = std::max(widest, error(bound.value) == 0 ? 0 : off / error(bound.value));
        }
        const double off = std::fabs(static_cast<double>(moved > 0 ? 1 : power) - static_cast<double>(bound.slope.v));
        EXPECT_LE(off, error(bound.slope)) << v << " " << e << " " << moved;
        widest_slope = std::max(widest_slope, error(bound.slope) == 0 ? 0 : off / error(bound.slope));
      }
    }
  EXPECT_GT(widest, 0.5);
  EXPECT_GT(widest_slope, 0.5);
}

// Protects: beyond 88 in float32 the call is marked as one at which production has NaN gradients; off-diagonal blocks
// of S0 are not looked at, and those of S are 0; T = 0 and sizes that do not fit are refused.
TEST(BlockCore, EdgesAreAsTheContractSays) {
  Question question = made(6, DType::float32);
  EXPECT_FALSE(expected(question).shared_edge);
  Question steep = question;
  for (auto& input : steep.inputs)
    if (input && input->name == "attn.b_qkv") input->values[0] = 95;
  EXPECT_TRUE(expected(steep).shared_edge);

  question = made(9, DType::float32);
  for (std::uint64_t s = 10; question.scalars["n_heads"] < 2 || !question.inputs[1]; ++s)
    question = made(s, DType::float32);
  const std::int64_t d = question.inputs[0]->shape[2], D = d / static_cast<std::int64_t>(question.scalars["n_heads"]);
  Question junk = question;
  for (std::size_t i = 0; i < junk.inputs[1]->values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (at / d % d / D != at % d / D) junk.inputs[1]->values[i] = 1e6;
  }
  const Expected one = expected(question), other = expected(junk);
  // A product of the base's numbers may sum in another order where they lie otherwise in memory.
  for (const std::size_t output : {0u, 2u})
    for (std::size_t i = 0; i < one.outputs[output].value.size(); ++i)
      EXPECT_NEAR(one.outputs[output].value[i], other.outputs[output].value[i],
                  one.outputs[output].tolerance[i] * one.radius_per_tolerance);
  for (std::size_t i = 0; i < one.outputs[2].value.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (at / d % d / D == at % d / D) continue;
    EXPECT_EQ(one.outputs[2].value[i], 0);
    EXPECT_EQ(one.outputs[2].tolerance[i], 0);
  }

  Question empty = question;
  empty.inputs[0]->shape[1] = 0;
  empty.inputs[0]->values.clear();
  EXPECT_THROW(expected(empty), std::invalid_argument);
  question.scalars["n_heads"] = static_cast<double>(d + 1);
  EXPECT_THROW(expected(question), std::invalid_argument);
}

}  // namespace
}  // namespace fractus::oracle::block_core
