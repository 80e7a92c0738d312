// The gate's fills: inside the domain, where they aim, and strong enough to show each known fault.
#include "contracts/moe_gate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "properties/driver.h"
#include "properties/moe_gate_fill.h"
#include "tests/oracle/moe_gate_forms.h"

namespace fractus::moe_gate {

const Driver& driver();

namespace {

namespace gate = oracle::moe_gate;

Case case_of(const std::string& fill, const Dims& dims, std::uint64_t seed, DType dtype = DType::float32) {
  Case c{.kernel = "moe_gate", .dtype = dtype, .dims = dims, .fill = fill, .seed = seed};
  c.cotangents = {"gates", "topk_weights", "lb"};
  return c;
}

gate::Question question_of(const Problem& problem, DType dtype) {
  return {.dtype = dtype,
          .inputs = problem.inputs,
          .kappa = problem.scalars.at("kappa"),
          .temperature = problem.scalars.at("temperature"),
          .top_k = static_cast<std::size_t>(problem.scalars.at("top_k")),
          .cotangents = problem.cotangents};
}

gate::Question question_of(const Case& c) { return question_of(fill(c), c.dtype); }

// Small shapes of the plan's kinds.
const std::vector<Dims>& some_shapes() {
  static const std::vector<Dims> all{{{"B", 2}, {"T", 5}, {"P", 16}, {"E", 8}, {"top_k", 2}},
                                     {{"B", 1}, {"T", 9}, {"P", 5}, {"E", 32}, {"top_k", 8}},
                                     {{"B", 1}, {"T", 3}, {"P", 4}, {"E", 2}, {"top_k", 2}},
                                     {{"B", 1}, {"T", 6}, {"P", 3}, {"E", 5}, {"top_k", 1}}};
  return all;
}

// Protects: every fill lies in the domain, with gradients that the definition bounds for all but a few tokens.
TEST(MoeGateFill, LiesInTheDomainAndIsMostlyDecided) {
  for (const std::string& name : fill_names())
    for (const DType dtype : {DType::float32, DType::float64}) {
      std::size_t elements = 0, undecidable = 0;
      for (std::uint64_t seed = 0; seed < 12; ++seed) {
        const Case c = case_of(name, some_shapes()[seed % some_shapes().size()], seed, dtype);
        const Problem problem = fill(c);
        EXPECT_LE(problem.scalars.at("kappa") / problem.scalars.at("temperature"), steepest) << name;
        EXPECT_GE(problem.scalars.at("temperature"), 0.1) << name;
        EXPECT_LE(problem.scalars.at("temperature"), 2.5) << name;
        for (const auto& input : problem.inputs)
          for (const double x : input->values) EXPECT_EQ(x, rounded(x, dtype)) << name;
        const gate::Refusal own = gate::refusal(question_of(c), gate::answer_of(question_of(c), gate::Form{}, false));
        EXPECT_EQ(own.text, "") << name << " seed " << seed;
        elements += own.elements;
        undecidable += own.undecidable;
      }
      EXPECT_LT(undecidable, elements / (name == "cancelling" ? 5 : 50)) << name;
    }
}

// Protects: the aimed fills hit. In `midpoints` some tokens are in doubt and others, whose gates differ by less than a
// thousandth, are not; `at_cut` has sums on both sides of the cut and in doubt; `one_sided` has cut ones.
TEST(MoeGateFill, AimsAtTheChoices) {
  const Dims dims{{"B", 1}, {"T", 40}, {"P", 16}, {"E", 8}, {"top_k", 2}};
  std::size_t in_doubt = 0, close_but_decided = 0, at_zero = 0, at_pi = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const gate::Question q = question_of(case_of("midpoints", dims, seed));
    const oracle::Expected expected = gate::expected(q);
    in_doubt += expected.choices_in_doubt;
    for (std::size_t t = 0; t < 40; ++t) {
      std::vector<double> gates(expected.outputs[0].value.begin() + static_cast<std::ptrdiff_t>(t * 8),
                                expected.outputs[0].value.begin() + static_cast<std::ptrdiff_t>((t + 1) * 8));
      std::sort(gates.rbegin(), gates.rend());
      const bool decided = expected.outputs[1].tolerance[t * 2] == 0;
      if (decided && gates[1] - gates[2] < 1e-3 * gates[1]) ++close_but_decided;
      at_zero += q.inputs[0]->values[t * 16] == 0;
      at_pi += q.inputs[0]->values[t * 16] == rounded(3.14159265358979323846, DType::float32);
    }
  }
  EXPECT_GT(in_doubt, 60u);
  EXPECT_GT(close_but_decided, 10u);
  EXPECT_GT(at_zero, 5u);
  EXPECT_GT(at_pi, 5u);

  std::set<std::string> sides;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const oracle::Expected expected = gate::expected(question_of(case_of("at_cut", dims, seed)));
    for (std::size_t t = 0; t < 40; ++t) {
      const double tolerance = expected.outputs[0].tolerance[t * 8], value = expected.outputs[0].value[t * 8];
      sides.insert(tolerance > 0.4 ? "in doubt" : value == 0.125 ? "cut" : "divided");
    }
  }
  EXPECT_EQ(sides, (std::set<std::string>{"cut", "divided", "in doubt"}));
  const oracle::Expected one_sided = gate::expected(question_of(case_of("one_sided", dims, 1)));
  EXPECT_GT(std::count(one_sided.outputs[0].value.begin(), one_sided.outputs[0].value.end(), 0.125), 8);
  std::size_t without_gradient = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const oracle::Expected cancelling = gate::expected(question_of(case_of("cancelling", dims, seed)));
    for (const double x : cancelling.gradients[0]->value) without_gradient += std::isnan(x);
  }
  EXPECT_GT(without_gradient, 6u * 3 * 16) << "of 5 of 40 tokens";
}

// Protects: each known fault is certified different on some fill of the plan, while the right form is on none; the
// small-gap fault and the missing fallback by the fills that aim at them.
TEST(MoeGateFill, ShowsEachKnownFault) {
  const auto shown_by = [](gate::Fault fault) {
    std::set<std::string> fills;
    for (const std::string& name : fill_names())
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const gate::Question q = question_of(case_of(name, some_shapes()[seed % some_shapes().size()], seed));
        if (gate::refusal(q, gate::answer_of(q, gate::Form{.fault = fault}, false)).different) fills.insert(name);
      }
    return fills;
  };
  EXPECT_TRUE(shown_by(gate::Fault::none).empty());
  for (int fault = 1; fault < gate::fault_count; ++fault)
    EXPECT_FALSE(shown_by(static_cast<gate::Fault>(fault)).empty()) << "fault " << fault;
  EXPECT_TRUE(shown_by(gate::Fault::next_expert_on_small_gap).contains("midpoints"));
  EXPECT_TRUE(shown_by(gate::Fault::uniform_fallback_missing).contains("one_sided"));
}

// Protects: the ordinary table is the training run's: golden/gate_e8.pt has these eight, rounded to float32.
TEST(MoeGateFill, ExpertsStandAtFareyFractions) {
  const std::vector<double> eight = farey_phases(8);
  ASSERT_EQ(eight.size(), 8u);
  EXPECT_EQ(eight[0], 0);
  EXPECT_FLOAT_EQ(static_cast<float>(eight[1]), 0.8377580642700195f);
  EXPECT_FLOAT_EQ(static_cast<float>(eight[2]), 1.5707963705062866f);
  EXPECT_EQ(farey_phases(1), std::vector<double>{0});
  const std::vector<double> many = farey_phases(128);
  EXPECT_TRUE(std::is_sorted(many.begin(), many.end()));
  EXPECT_FLOAT_EQ(static_cast<float>(many[3]), 0.14871443808078766f);
}

// Protects: a case that is being shrunk below top_k experts is a case still.
TEST(MoeGateFill, FewerExpertsThanTopKAreAllChosen) {
  const Dims dims{{"B", 1}, {"T", 2}, {"P", 2}, {"E", 2}, {"top_k", 5}};
  for (const std::string& name : fill_names()) EXPECT_EQ(fill(case_of(name, dims, 1)).scalars.at("top_k"), 2) << name;
}

// Protects: an answer's own order is what its weights are held to, with nothing in doubt: given another order of the
// same selection, the driver's expectation is of that order.
TEST(MoeGateDriver, ExpectsTheAnswersOwnOrder) {
  const Case c = case_of("together", some_shapes()[0], 3);
  const Problem problem = fill(c);
  std::vector<Array> answer = gate::answer_of(question_of(c), gate::Form{}, false);
  const oracle::Expected first = driver().expected(problem, c.dtype, {.outputs = &answer});
  std::swap(answer[1].values[0], answer[1].values[1]);
  const oracle::Expected second = driver().expected(problem, c.dtype, {.outputs = &answer});
  EXPECT_EQ(second.outputs[1].value[0], first.outputs[1].value[1]);
  EXPECT_EQ(second.outputs[2].value[0], first.outputs[2].value[1]);
  EXPECT_NE(first.outputs[2].value[0], first.outputs[2].value[1]);
}

}  // namespace
}  // namespace fractus::moe_gate
