// The tolerance of the mixture of experts: no right form is refused, and every fault of shared/mutants/moe.py is;
// values and radii against 50 digits; choices in doubt; what is expected where nothing settles them.
#include <fmt/format.h>

#include <iostream>
#include <numbers>
#include <random>

#include "oracle/exact.h"
#include "oracle/moe_routing.h"
#include "tests/oracle/moe_judged.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::moe {
namespace {

struct Sizes {
  std::int64_t B, T, d, P, E, F, r, top_k;
};

enum class Kind { ordinary, around_two, tail, ties, spread };

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

Question made(const Sizes& s, Kind kind, std::uint64_t seed, DType dtype, bool backward = true) {
  Values values(seed);
  Question question{.dtype = dtype,
                    .inputs = {},
                    .kappa = 4,
                    .temperature = values.chance(0.5) ? 2.5 : values.uniform(0.3, 2),
                    .top_k = static_cast<std::size_t>(s.top_k),
                    .cotangents = {}};
  const auto tensor = [&](const char* name, Shape shape, double size) {
    Array array = zeros(name, dtype, std::move(shape));
    for (double& x : array.values) x = values.about(size);
    return array;
  };
  const double inner = kind == Kind::spread ? 6 : 1;
  Array h = tensor("h", {s.B, s.T, s.d}, 1), phases = tensor("phases", {s.B, s.T, s.P}, 2),
        mu = tensor("expert_phases", {s.E}, 3), b1 = tensor("b1", {s.E, s.F}, kind == Kind::ordinary ? 1 : 0.3),
        b2 = tensor("b2", {s.E, s.d}, 1);
  for (double& x : b1.values)
    x += kind == Kind::tail ? -5 : kind == Kind::around_two ? (values.chance(0.5) ? 2 : -2) : 0;
  if (kind == Kind::ties) {
    // Experts in pairs that mirror each other, and tokens between them.
    for (std::size_t e = 0; e < mu.values.size(); ++e)
      mu.values[e] = (e % 2 == 0 ? 1 : -1) * rounded(0.5 + static_cast<double>(e / 2) * 0.7, dtype);
    const auto P = static_cast<std::size_t>(s.P);
    for (std::size_t i = 0; i < phases.values.size(); ++i)
      phases.values[i] = i / P % 3 == 2 ? phases.values[i] : i / P % 3 == 0 ? 0 : 1e-8;
  }
  const auto root = [](std::int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); };
  std::optional<Array> w1, w2, U1, V1, U2, V2, scale1, scale2;
  if (s.r == 0) {
    w1 = tensor("w1", {s.E, s.d, s.F}, inner * root(s.d));
    w2 = tensor("w2", {s.E, s.F, s.d}, root(s.F));
  } else {
    U1 = tensor("U1", {s.E, s.F, s.r}, inner * root(s.r));
    V1 = tensor("V1", {s.E, s.d, s.r}, root(s.d));
    U2 = tensor("U2", {s.E, s.d, s.r}, root(s.r));
    V2 = tensor("V2", {s.E, s.F, s.r}, root(s.F));
    scale1 = tensor("scale1", {s.E, 1, 1}, 1);
    scale2 = tensor("scale2", {s.E, 1, 1}, 1);
  }
  question.inputs = {h, phases, mu, w1, w2, U1, V1, U2, V2, scale1, scale2, b1, b2};
  for (auto& input : question.inputs)
    if (input)
      for (double& x : input->values) x = rounded(x, dtype);
  if (!backward) return question;
  question.cotangents = {tensor("out", {s.B, s.T, s.d}, 1), tensor("lb", {}, 1)};
  for (auto& cotangent : question.cotangents)
    for (double& x : cotangent->values) x = rounded(x, dtype);
  return question;
}

std::vector<std::pair<std::string, Form>> right_forms() {
  return {{"gather first", {}},
          {"all experts", {.all_experts = true}},
          {"backwards", {.sum = Sum::backwards, .last_of_ties = true}},
          {"pairwise", {.sum = Sum::pairwise, .all_experts = true, .last_of_ties = true}},
          {"matrices contracted", {.rank = Rank::contracted}},
          {"scaled matrices", {.sum = Sum::backwards, .rank = Rank::contracted, .scaled = Scaled::matrix}},
          {"scaled inside", {.scaled = Scaled::inner}},
          {"weighed activations", {.weighed = Weighed::activation}},
          {"one sum", {.weighed = Weighed::activation, .one_sum = true}},
          {"one sum of all, scaled inside",
           {.sum = Sum::backwards,
            .scaled = Scaled::inner,
            .weighed = Weighed::activation,
            .all_experts = true,
            .one_sum = true}},
          {"logistic", {.logistic = true}}};
}

int within(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high)); }
std::uint64_t seed() { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, 1 << 30)); }

Sizes sizes() {
  const int E = within(1, 7);
  return {within(1, 3), within(1, 4), within(1, 7), within(1, 5), E, within(1, 8), within(0, 4), within(1, E + 1)};
}

Kind drawn_kind() { return *rc::gen::element(Kind::ordinary, Kind::around_two, Kind::tail, Kind::ties, Kind::spread); }

template <class T>
std::string every_form_is_inside(DType dtype, Tally& tally) {
  const Question question = made(sizes(), drawn_kind(), seed(), dtype);
  for (const auto& [name, form] : right_forms())
    if (auto text = refusal(question, answered<T>(question, form), tally); !text.empty()) return name + ": " + text;
  if (std::is_same_v<T, float>)
    if (auto text = refusal(question, answered<T, double>(question, {}), tally); !text.empty())
      return "in double inside: " + text;
  return "";
}

// Protects: no right form is refused: either path of production, any association of the low-rank products, scales and
// weights anywhere, ties decided either way, and the gradients that autograd makes of each.
TEST(Moe, BoundsEveryRightForm) {
  Tally tally;
  EXPECT_TRUE(holds(400, [&] { return every_form_is_inside<float>(DType::float32, tally); }));
  EXPECT_TRUE(holds(150, [&] { return every_form_is_inside<double>(DType::float64, tally); }));
  std::cout << tally.text();
  EXPECT_LT(tally.undecidable, tally.elements / 20);
}

// Protects: the values themselves, gradients included, by an evaluation that shares nothing with them.
template <class T>
std::string values_are_within_their_radius(DType dtype) {
  Question question = made(sizes(), drawn_kind(), seed(), dtype);
  Mixture<T> form(question, {});
  const Evaluated<T> run = form.run();
  const auto outputs = outputs_of(doubles<T>(run.out), static_cast<double>(run.lb), question);
  question.answered = &outputs;
  const Expected expected = moe::expected(question);
  const Evaluated<Float50> truth = Mixture<Float50>(question, {}, &form.selections).run();
  const auto off = [&](const ExpectedTensor& tensor, const std::vector<Float50>& true_values) -> std::string {
    for (std::size_t i = 0; i < tensor.value.size(); ++i) {
      if (!std::isfinite(tensor.tolerance[i])) continue;
      Float50 value(tensor.value[i]);
      if (!tensor.remainder.empty()) value += tensor.remainder[i];
      const auto distance = static_cast<double>(abs(value - true_values[i]));
      const double radius = tensor.tolerance[i] * expected.radius_per_tolerance;
      if (distance > radius) return fmt::format("{}[{}] is off by {}, its radius {}", tensor.name, i, distance, radius);
    }
    return "";
  };
  if (auto text = off(expected.outputs[0], truth.out); !text.empty()) return text;
  if (auto text = off(expected.outputs[1], {truth.lb}); !text.empty()) return text;
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    if (expected.gradients[i])
      if (auto text = off(*expected.gradients[i], truth.gradients.at(question.inputs[i]->name)); !text.empty())
        return text;
  return "";
}
TEST(Moe, ValuesAreThoseOfFiftyDigits) {
  EXPECT_TRUE(holds(60, [] { return values_are_within_their_radius<float>(DType::float32); }));
  EXPECT_TRUE(holds(40, [] { return values_are_within_their_radius<double>(DType::float64); }));
}

// Negative controls: every fault is refused where its summary says that it shows, in float32 already, and is none
// where it says that it does not.
TEST(Moe, RefusesEveryFault) {
  for (const std::int64_t r : {0, 2})
    for (const Fault fault : faults) {
      if (fault == Fault::scale2_forgotten && r == 0) continue;
      std::size_t refused = 0;
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Tally tally;
        Question question = made({1, 8, 6, 4, 5, 7, r, 2}, Kind::ordinary, seed, DType::float32);
        question.temperature = 2.5;  // no weight is next to 1
        // One theta for all: an uneven route.
        for (std::size_t i = 4; i < question.inputs[1]->values.size(); ++i)
          question.inputs[1]->values[i] = question.inputs[1]->values[i % 4];
        EXPECT_EQ(refusal(question, answered<float>(question, {}), tally), "");
        refused += !refusal(question, answered<float>(question, {.fault = fault}), tally).empty();
      }
      EXPECT_EQ(refused, 10U) << static_cast<int>(fault) << " r " << r;
    }
}

// Protects: the selections that are tried are all that are right, each once, the definition's own first.
TEST(Moe, TriesEveryRightSelection) {
  EXPECT_TRUE(holds(300, []() -> std::string {
    const auto E = static_cast<std::size_t>(within(1, 8)),
               top_k = static_cast<std::size_t>(within(1, static_cast<int>(E) + 1));
    Values values(seed());
    std::vector<Companion<DType::float32>> l;
    for (std::size_t e = 0; e < E; ++e) {
      const double x = std::trunc(values.uniform(0, 4)) / 2;
      l.emplace_back(x, x, 0, values.chance(0.5) ? 0 : values.uniform(0, 0.5), 1);
    }
    const moe_gate::Selections certain = moe_gate::selections(l, top_k, Branch::divide);
    auto found = all_selections(certain, 1000);
    if (found.empty() || found.front() != certain.own) return "the definition's own is not the first";
    for (auto& one : found) std::sort(one.begin(), one.end());
    std::sort(found.begin(), found.end());
    if (std::adjacent_find(found.begin(), found.end()) != found.end()) return "one is tried twice";
    std::size_t right = 0;
    for (unsigned mask = 0; mask < 1U << E; ++mask) {
      std::vector<std::size_t> chosen;
      for (std::size_t e = 0; e < E; ++e)
        if (mask >> e & 1) chosen.push_back(e);
      if (!certain.admit(chosen)) continue;
      ++right;
      if (!std::binary_search(found.begin(), found.end(), chosen)) return "one is missing";
    }
    if (right != found.size()) return "one of them is not right";
    if (right > 1 && !all_selections(certain, right - 1).empty()) return "too many are tried";
    return "";
  }));
}

// Protects: a selection that is not right is none of those that out may be compared with.
TEST(Moe, RefusesAWrongSelection) {
  const Question question = made({1, 1, 4, 4, 5, 4, 0, 2}, Kind::ordinary, 3, DType::float32);
  Mixture<float> right(question, {});
  const std::vector<std::size_t> own = (right.run(), right.selections[0]);
  std::size_t other = 0;
  while (std::find(own.begin(), own.end(), other) != own.end()) ++other;
  const std::vector<std::vector<std::size_t>> wrong{{own[0], other}};
  const Evaluated<float> run = Mixture<float>(question, {}, &wrong).run();
  Answered<float> answer{outputs_of(doubles<float>(run.out), static_cast<double>(run.lb), question), {}};
  for (const auto& [name, gradient] : run.gradients) answer.gradients[name] = doubles<float>(gradient);
  Tally tally;
  EXPECT_NE(refusal(question, answer, tally).find("out["), std::string::npos);
}

// Protects: at an exact tie either selection is right, the gradients are those of the one that out shows, and how far
// out moves is measured; without an answer nothing that the choice reaches is decided, and all else is.
TEST(Moe, TiesFollowTheAnswer) {
  Question question = made({1, 1, 4, 2, 4, 5, 0, 1}, Kind::ties, 5, DType::float64);
  double far = 0;
  std::vector<Answered<double>> answers;
  for (const std::size_t e : {0, 1}) {
    const std::vector<std::vector<std::size_t>> chosen{{e}};
    const Evaluated<double> run = Mixture<double>(question, {}, &chosen).run();
    answers.push_back({outputs_of(run.out, run.lb, question), {}});
    for (const auto& [name, gradient] : run.gradients) answers.back().gradients[name] = gradient;
    Tally tally;
    EXPECT_EQ(refusal(question, answers.back(), tally), "");
    EXPECT_EQ(tally.undecidable, 0);
  }
  for (std::size_t c = 0; c < 4; ++c)
    far = std::max(far, std::fabs(answers[0].outputs[0].values[c] - answers[1].outputs[0].values[c]));
  // The gradients of the other selection are wrong ones.
  Answered<double> crossed = answers[0];
  crossed.gradients = answers[1].gradients;
  Tally tally;
  EXPECT_NE(refusal(question, crossed, tally), "");

  question.answered = &answers[1].outputs;
  const Expected settled = expected(question);
  EXPECT_EQ(settled.choices_in_doubt, 1U);
  EXPECT_NEAR(settled.flip_moves, far, 1e-12);
  question.answered = nullptr;
  const Expected open = expected(question);
  EXPECT_EQ(open.choices_in_doubt, 1U);
  EXPECT_TRUE(std::isinf(open.outputs[0].tolerance[0]));
  EXPECT_TRUE(std::isfinite(open.outputs[1].tolerance[0])) << "lb knows of no choice";
  EXPECT_TRUE(std::isinf(open.gradients[0]->tolerance[0]));
  EXPECT_TRUE(std::isinf(open.gradients[3]->tolerance[0])) << "expert 0 of w1";
  EXPECT_EQ(open.gradients[3]->tolerance[3 * 4 * 5], 0) << "expert 3 is out of the question: exactly 0";
}

// Protects: where oscillators cancel nothing that theta reaches has a bound.
TEST(Moe, AnAngleOfNothingIsUndecidable) {
  Question question = made({1, 2, 3, 2, 3, 4, 1, 1}, Kind::ordinary, 5, DType::float32);
  question.inputs[1]->values = {0.5, rounded(0.5 + std::numbers::pi, DType::float32), 0.5, 0.7};
  const Expected expected = moe::expected(question);
  EXPECT_TRUE(std::isinf(expected.outputs[0].tolerance[0]));
  EXPECT_TRUE(std::isinf(expected.outputs[1].tolerance[0]));
  EXPECT_TRUE(std::isnan(expected.gradients[1]->value[0]));
  EXPECT_TRUE(std::isfinite(expected.outputs[0].tolerance[3])) << "the other token has its own";
}

// Protects: only lb's cotangent, only out's; and inputs that do not fit are refused by name.
TEST(Moe, CotangentsAndShapes) {
  for (const std::size_t alone : {0, 1}) {
    Tally tally;
    Question question = made({1, 3, 4, 4, 3, 5, 2, 2}, Kind::ordinary, 8, DType::float32);
    question.cotangents[1 - alone] = std::nullopt;
    EXPECT_EQ(refusal(question, answered<float>(question, {}), tally), "");
  }
  Question question = made({1, 3, 4, 4, 3, 5, 2, 2}, Kind::ordinary, 8, DType::float32);
  question.top_k = 4;
  EXPECT_THROW(expected(question), std::invalid_argument);
  question = made({1, 3, 4, 4, 3, 5, 2, 2}, Kind::ordinary, 8, DType::float32);
  question.inputs[6]->shape = {3, 2, 4};
  EXPECT_THROW(expected(question), std::invalid_argument);
  question.inputs[6] = std::nullopt;
  EXPECT_THROW(expected(question), std::invalid_argument);
}

}  // namespace
}  // namespace fractus::oracle::moe
