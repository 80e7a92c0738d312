// Cross entropy's driver, and the checks that came with it: the domain, tied inputs, a declared depth of addition.
#include "contracts/cross_entropy.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/cross_entropy_fill.h"
#include "properties/property.h"

namespace fractus {
namespace {

const Driver& driver() { return *find_driver("cross_entropy"); }

Case some_case(const std::string& fill, DType dtype, std::int64_t N, std::int64_t d, std::int64_t V,
               std::uint64_t seed = 5) {
  Case c = base_case(driver(), "gradients", dtype, {{"N", N}, {"d", d}, {"V", V}, {"ce_chunk", 3}}, fill);
  c.cotangents = output_names(driver());
  c.seed = seed;
  return c;
}

// What a call of cross_entropy computes, in double and straight from the definition.
struct Plain {
  double loss = 0;
  std::vector<double> dh, dW;

  Plain(const Array& h, const Array& W, const Array& targets, double g) {
    const auto N = static_cast<std::size_t>(h.shape[0]), d = static_cast<std::size_t>(h.shape[1]),
               V = static_cast<std::size_t>(W.shape[0]);
    dh.resize(N * d), dW.resize(V * d);
    for (std::size_t n = 0; n < N; ++n) {
      std::vector<double> x(V);
      for (std::size_t i = 0; i < V; ++i)
        for (std::size_t k = 0; k < d; ++k) x[i] += h.values[n * d + k] * W.values[i * d + k];
      const double a = *std::max_element(x.begin(), x.end());
      double s = 0;
      for (double logit : x) s += std::exp(logit - a);
      const auto target = static_cast<std::size_t>(targets.values[n]);
      loss += (std::log(s) - (x[target] - a)) / static_cast<double>(N);
      for (std::size_t i = 0; i < V; ++i) {
        const double dx = (std::exp(x[i] - a) / s - (i == target ? 1 : 0)) * g / static_cast<double>(N);
        for (std::size_t k = 0; k < d; ++k) {
          dh[n * d + k] += dx * W.values[i * d + k];
          dW[i * d + k] += dx * h.values[n * d + k];
        }
      }
    }
  }
};

Answer answer_of(const Call& call) {
  const Array &h = *call.inputs[0], &W = *call.inputs[1], &targets = *call.inputs[2];
  const bool backward = !call.cotangents.empty() && call.cotangents[0];
  const Plain plain(h, W, targets, backward ? call.cotangents[0]->values[0] : 0);
  const auto array = [&](const char* name, const Shape& shape, std::vector<double> values) {
    for (double& x : values) x = rounded(x, h.dtype);
    return Array{name, h.dtype, shape, std::move(values)};
  };
  Answer answer;
  answer.outputs = {array("loss", {}, {plain.loss})};
  answer.gradients.resize(3);
  if (backward && call.gradients[0]) answer.gradients[0] = array("h", h.shape, plain.dh);
  if (backward && call.gradients[1]) answer.gradients[1] = array("W", W.shape, plain.dW);
  return answer;
}

Subject subject_of(std::function<Answer(const Call&)> call) {
  Subject subject;
  subject.form = "plain";
  subject.call = std::move(call);
  return subject;
}

// Protects: no false refusal, and no check that compares nothing: values are in the dtype, targets in the vocabulary.
TEST(CrossEntropyFill, GivesValuesOfTheDtypeAndTargetsOfTheVocabulary) {
  EXPECT_TRUE(rc::check("fills", [] {
    const Case c = *random_case(driver(), {}, "gradients", driver().fills, Backward::always);
    const Problem problem = driver().fill(c);
    for (std::size_t i : {0u, 1u})
      for (double x : problem.inputs[i]->values) RC_ASSERT(std::isfinite(x) && x == rounded(x, c.dtype));
    for (double t : problem.inputs[2]->values)
      RC_ASSERT(t == std::floor(t) && t >= 0 && t < static_cast<double>(c.dims.at("V")));
    RC_ASSERT(problem.scalars.at("ce_chunk") == static_cast<double>(c.dims.at("ce_chunk")));
    RC_ASSERT(problem.cotangents.at(0).has_value());
  }));
}

// Protects: the definition's own values pass on every fill, by way of a plain evaluation in double.
TEST(CrossEntropyFill, APlainEvaluationPassesOnAllOfThem) {
  for (const std::string& fill : driver().fills) {
    if (fill == "huge_logits") continue;  // double itself rounds there as float32 may
    Expectation expectation(driver(), some_case(fill, DType::float32, 8, 5, 70), 1);
    const Outcome outcome =
        call_and_compare(expectation, subject_of(answer_of), call_of(expectation, subject_of(answer_of)));
    EXPECT_FALSE(outcome.finding) << fill << ": " << outcome.finding->text;
    EXPECT_EQ(outcome.elements, 1 + 8 * 5 + 70 * 5) << fill;
  }
}

// Protects: the exact property. One-level logits and the wide fills are certified, gradients too, and the wide ones
// fill the significand: a tensor that is kept one bit short would have to round.
TEST(CrossEntropyFill, ExactFillsAreCertified) {
  for (DType dtype : {DType::float32, DType::float64}) {
    Case c = some_case("one_level", dtype, 8, 5, 70);
    Exactness exactness = driver().exactness(driver().fill(c), dtype);
    EXPECT_TRUE(exactness.outputs[0] && exactness.gradients[0] && exactness.gradients[1]);
    for (const std::string& fill : driver().wide_fills) {
      c.fill = fill;
      if (fill == "wide_g") c.dims["N"] = 1;  // all rows share the significand there
      const Problem problem = driver().fill(c);
      exactness = driver().exactness(problem, dtype);
      const std::size_t sees_it = fill == "wide_W" ? 0 : 1;
      ASSERT_TRUE(exactness.gradients[sees_it]) << fill;
      int fullest = 0;
      for (double x : *exactness.gradients[sees_it]) {
        int exponent = 0;
        const double significand = std::ldexp(std::frexp(std::fabs(x), &exponent), significand_bits(dtype));
        if (x != 0 && std::fmod(significand, 8) != 0) ++fullest;  // one of its last three bits is set
      }
      EXPECT_GT(fullest, 0) << fill;
    }
  }
}

// Protects: on-sets that a lost tail or block would miss. Over some draws each token is on, the last one often.
TEST(CrossEntropyFill, OnSetsReachEveryTokenAndTheTail) {
  std::vector<int> on(90);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Case c = some_case("two_level", DType::float32, 6, 6, 90, seed);
    const Array& W = *driver().fill(c).inputs[1];
    for (std::size_t i = 0; i < 90; ++i)
      for (std::size_t p = 0; p < 6; ++p) on[i] += W.values[i * 6 + p] == 0 ? 1 : 0;
  }
  EXPECT_GT(*std::min_element(on.begin(), on.end()), 0);
  EXPECT_GT(on[89], 40);
}

// Protects: a declaration is enforced. The same slightly wrong normaliser is inside the bound of any order and outside
// of that of the depth which the form declares.
TEST(CrossEntropy, ADeclaredDepthTightensTheBound) {
  Case c = some_case("exact_logits", DType::float32, 1, 4, 2000);
  c.cotangents.clear();
  Expectation expectation(driver(), c, 1);
  const auto off = [](const Call& call) {
    Answer answer = answer_of(call);
    answer.outputs[0].values[0] += 2e-5;
    return answer;
  };
  const auto declared = [&](std::int64_t depth) {
    return subject_of([off, depth](const Call& call) {
      Answer answer = off(call);
      answer.add_depth = depth;
      return answer;
    });
  };
  const Call call = call_of(expectation, declared(0));
  EXPECT_FALSE(call_and_compare(expectation, declared(0), call).finding);
  EXPECT_TRUE(call_and_compare(expectation, declared(8), call).finding);
}

Property gradients() { return *find_property("gradients"); }

// Protects: "tied" gradients. A W whose gradient takes in that of h passes; one that lacks either part does not.
TEST(CrossEntropy, TiedGradientsAccumulate) {
  for (DType dtype : {DType::float32, DType::float64}) {
    Case c = some_case("ordinary", dtype, 7, 4, 9);
    c.variant = "tied";
    const auto tied = [](double of_h, double of_W) {
      return subject_of([of_h, of_W](const Call& call) {
        Call both = call;
        both.gradients[0] = true;
        Answer answer = answer_of(both);
        Array &dh = *answer.gradients[0], &dW = *answer.gradients[1];
        for (double& x : dW.values) x *= of_W;
        for (std::size_t n = 0; n < call.tied->rows.size(); ++n)
          for (std::size_t k = 0; k < 4; ++k)
            dW.values[static_cast<std::size_t>(call.tied->rows[n]) * 4 + k] += of_h * dh.values[4 * n + k];
        for (double& x : dW.values) x = rounded(x, call.inputs[0]->dtype);
        answer.gradients[0].reset();
        return answer;
      });
    };
    Expectation expectation(driver(), c, 1);
    if (dtype == DType::float32) {  // plain double is no right kernel of float64
      const Outcome right = gradients().check(expectation, tied(1, 1));
      EXPECT_FALSE(right.finding) << right.finding->text;
    }
    EXPECT_TRUE(gradients().check(expectation, tied(0, 1)).finding);
    EXPECT_TRUE(gradients().check(expectation, tied(1, 0)).finding);
  }
}

// What a form makes of spoiled input; everything else it computes as it should.
Outcome at_violation(const std::string& name, std::function<Answer(const Call&)> spoiled_call, bool after = true) {
  Case c = some_case("ordinary", DType::float32, 5, 3, 11);
  c.property = "domain";
  c.variant = name;
  c.cotangents.clear();
  Expectation expectation(driver(), c, 1);
  int calls = 0;
  const Outcome outcome = find_property("domain")->check(
      expectation, subject_of([&](const Call& call) { return ++calls == 1 ? spoiled_call(call) : answer_of(call); }));
  EXPECT_EQ(calls, after ? 2 : 1) << name;  // the good call behind the bad one
  return outcome;
}

Answer raised(const Call&) { return {.status = Status::raised, .message = "no"}; }
Answer loss_of(double value) {
  Answer answer;
  answer.outputs = {Array{"loss", DType::float32, {}, {value}}};
  return answer;
}

// Protects: bad input is refused. An exception passes at every violation, a number does not at any.
TEST(Domain, DemandsAnException) {
  for (const Violation& violation : driver().violations) {
    EXPECT_FALSE(at_violation(violation.name, raised).finding) << violation.name;
    const Outcome computed = at_violation(
        violation.name, [](const Call&) { return loss_of(17); }, false);
    ASSERT_TRUE(computed.finding) << violation.name;
    EXPECT_EQ(computed.finding->kind, "unchecked-input");
    EXPECT_EQ(computed.finding->waiver, "unchecked-input");
    EXPECT_FALSE(computed.finding->broken);
    EXPECT_NE(computed.finding->text.find(violation.text), std::string::npos);
  }
}

// Protects: what the contract allows beside is allowed, and no more: -100 left out of sum and mean, a NaN that shows, a
// negative chunk that changes nothing.
TEST(Domain, AllowsWhatTheContractDoes) {
  const auto ignoring = [](const Call& call) {
    Call rest = call;
    Array &h = *rest.inputs[0], &targets = *rest.inputs[2];
    h.values.clear(), targets.values.clear();
    for (std::size_t n = 0; n < call.inputs[2]->values.size(); ++n) {
      if (call.inputs[2]->values[n] == cross_entropy::ignored_target) continue;
      const auto row = call.inputs[0]->values.begin() + static_cast<std::ptrdiff_t>(3 * n);
      h.values.insert(h.values.end(), row, row + 3);
      targets.values.push_back(call.inputs[2]->values[n]);
    }
    h.shape[0] = targets.shape[0] = 5;
    return answer_of(rest);
  };
  const Outcome left_out = at_violation("target_ignored", ignoring);
  EXPECT_FALSE(left_out.finding);
  EXPECT_NE(left_out.note.find("-100"), std::string::npos);
  const auto in_mean = [&](const Call& call) {
    Answer answer = ignoring(call);
    answer.outputs[0].values[0] *= 5.0 / static_cast<double>(call.inputs[2]->values.size());  // counted in the mean
    return answer;
  };
  EXPECT_TRUE(at_violation("target_ignored", in_mean, false).finding);
  EXPECT_FALSE(at_violation("nan_in_h", [](const Call&) { return loss_of(std::nan("")); }).finding);
  EXPECT_TRUE(at_violation(
                  "target_V", [](const Call&) { return loss_of(std::nan("")); }, false)
                  .finding);
  EXPECT_FALSE(at_violation("negative_chunk", answer_of).finding);
}

// Protects: a crash at bad input is no refusal, and a form that is broken by it is found.
TEST(Domain, ACrashOrWhatComesAfterIsFound) {
  const auto crash = [](const Call&) { return Answer{.status = Status::crashed, .message = "signal 11"}; };
  const Outcome crashed = at_violation("target_V", crash, false);
  ASSERT_TRUE(crashed.finding);
  EXPECT_TRUE(crashed.finding->broken);
  Case c = some_case("ordinary", DType::float32, 5, 3, 11);
  c.property = "domain";
  c.variant = "target_V";
  Expectation expectation(driver(), c, 1);
  int calls = 0;
  const Outcome spoiled = find_property("domain")->check(
      expectation, subject_of([&](const Call& call) { return ++calls == 1 ? raised(call) : loss_of(3); }));
  ASSERT_TRUE(spoiled.finding);
  EXPECT_NE(spoiled.finding->text.find("after a target of V"), std::string::npos);
}

}  // namespace
}  // namespace fractus
