// The property `identity` on forms that evaluate the definition over the field, or something near it: what is the same
// function passes, what is another one is named, and floats decide what may be called DIFFERENT.
#include <gtest/gtest.h>

#include <map>

#include "properties/all.h"
#include "properties/case.h"
#include "properties/over_field.h"
#include "properties/property.h"

namespace fractus {
namespace {

const Driver& attention() { return *find_driver("linear_attention"); }

std::vector<Case> cases_of(const Driver& driver, std::int64_t block = 4) {
  std::vector<Case> cases = identity_property().plan(driver, {.block = block});
  std::uint64_t seed = 1;
  for (Case& c : cases) c.seed = seed++;
  return cases;
}

// The definition's values over floats, each rounded once.
Answer by_definition(const Driver& driver, const Call& call) {
  const DType dtype = call.inputs.front()->dtype;
  const oracle::Expected expected =
      driver.expected({.inputs = call.inputs, .scalars = call.scalars, .cotangents = call.cotangents}, dtype, Judged{});
  Answer answer;
  const auto array = [&](const oracle::ExpectedTensor& tensor) {
    Array result{tensor.name, dtype, tensor.shape, tensor.value};
    for (double& x : result.values) x = rounded(x, dtype);
    return result;
  };
  for (const auto& output : expected.outputs) answer.outputs.push_back(array(output));
  answer.gradients.resize(call.inputs.size());
  for (std::size_t i = 0; i < expected.gradients.size(); ++i)
    if (expected.gradients[i] && call.gradients[i]) answer.gradients[i] = array(*expected.gradients[i]);
  return answer;
}

FieldAnswer over_field_by(const Driver& driver, const FieldCall& call) {
  FieldAnswer answer;
  const oracle::FieldExpected expected = driver.over_field(call);
  answer.outputs = expected.outputs;
  answer.gradients = expected.gradients;
  return answer;
}

// A form that does to its arguments what `spoil` does, in both worlds, and is the definition behind it.
template <class Spoil>
Subject subject_of(const Driver& driver, const Spoil& spoil) {
  Subject subject;
  subject.form = "under_test";
  subject.call = [&driver, spoil](Call call) {
    spoil(call);
    return by_definition(driver, call);
  };
  subject.call_over_field = [&driver, spoil](FieldCall call) {
    spoil(call);
    return over_field_by(driver, call);
  };
  return subject;
}

Subject right(const Driver& driver) {
  return subject_of(driver, [](auto&) {});
}

// The first case of the plan at which the property sees something.
Outcome first_seen(const Driver& driver, const Subject& subject) {
  for (const Case& c : cases_of(driver)) {
    Expectation expectation(driver, c, 1);
    Outcome outcome = identity_property().check(expectation, subject);
    if (outcome.finding || !outcome.algebra.empty() || outcome.not_algebraic) return outcome;
  }
  return {};
}

std::vector<const Driver*> rational_drivers() {
  std::vector<const Driver*> all = identity_drivers();
  all.push_back(&attention());
  return all;
}

// Protects: the definition's own function passes at every case of every rational kernel, and with the stated certainty.
TEST(Identity, TheDefinitionPassesEverywhere) {
  for (const Driver* driver : rational_drivers()) {
    int compared = 0;
    for (const Case& c : cases_of(*driver)) {
      if (c.dims.contains("D") && c.dims.at("D") > 40) continue;  // seconds in a build for debugging
      Expectation expectation(*driver, c, 1);
      const Outcome outcome = identity_property().check(expectation, right(*driver));
      EXPECT_FALSE(outcome.finding) << label(c) << outcome.finding->text;
      EXPECT_EQ(outcome.algebra, "") << label(c);
      EXPECT_FALSE(outcome.not_algebraic) << label(c);
      if (c.variant == "induction") continue;
      ASSERT_TRUE(outcome.escape) << label(c);
      EXPECT_LE(*outcome.escape, 1e-15) << label(c);
      EXPECT_GT(outcome.bit_equal, 0) << label(c);
      ++compared;
    }
    EXPECT_GT(compared, 15) << driver->contract->kernel;
  }
}

// Protects: what a wrong form computes is named where one operation explains it, and floats are the witness, as a case
// of the property over floats that shows it again.
TEST(Identity, NamesWhatIsWrongAndShowsItInFloats) {
  const auto without = [](std::size_t i) {
    return subject_of(attention(), [i](auto& call) { call.inputs[i].reset(); });
  };
  for (const auto& [subject, name] : {std::pair(without(4), "z0"), std::pair(without(3), "S0")}) {
    const Outcome outcome = first_seen(attention(), subject);
    ASSERT_TRUE(outcome.finding) << outcome.algebra;
    EXPECT_EQ(outcome.finding->tensor, "y");
    EXPECT_FALSE(outcome.finding->broken);
    EXPECT_NE(outcome.finding->text.find(std::string("y is as if ") + name + " were absent"), std::string::npos)
        << outcome.finding->text;
    ASSERT_TRUE(outcome.witness);
    EXPECT_NE(outcome.witness->property, "identity");
    Expectation again(attention(), *outcome.witness, 1);
    const Outcome shown = find_property(outcome.witness->property)->check(again, subject);
    ASSERT_TRUE(shown.finding);
    EXPECT_EQ(shown.finding->tensor, outcome.finding->tensor);
  }
}

// Protects: gradients. A cotangent that is ignored shows in the first gradient that it reaches, by its name.
TEST(Identity, NamesAGradient) {
  const Subject subject = subject_of(attention(), [](auto& call) {
    if (call.cotangents.size() > 1 && call.cotangents[1])
      std::fill(call.cotangents[1]->values.begin(), call.cotangents[1]->values.end(), 0);
  });
  const Outcome outcome = first_seen(attention(), subject);
  ASSERT_TRUE(outcome.finding) << outcome.algebra;
  EXPECT_EQ(outcome.finding->tensor, "dk");
  EXPECT_NE(outcome.finding->text.find("dk is as if nothing flowed back into S"), std::string::npos)
      << outcome.finding->text;
}

// Protects: a form that is right in floats is never DIFFERENT, whatever its algebra. Here the 1e-20 is left out, which
// no fill's bound sees.
TEST(Identity, WhatFloatsDoNotShowIsBelowRounding) {
  Subject subject = right(attention());
  subject.call_over_field = [](const FieldCall& call) {
    const oracle::FieldExpected expected = attention().suppositions.front().over_field(call);
    return FieldAnswer{.outputs = expected.outputs, .gradients = expected.gradients};
  };
  const Outcome outcome = first_seen(attention(), subject);
  EXPECT_FALSE(outcome.finding);
  EXPECT_NE(outcome.algebra.find("y is as if the 1e-20 in the denominator were dropped"), std::string::npos)
      << outcome.algebra;
}

// Protects: another constant is found by its exponent. Negative control of the explanations: a constant that is no
// power of ten is not explained, and still seen.
TEST(Identity, NamesAnotherConstant) {
  Subject subject = right(attention());
  const auto constant = [&](std::size_t i) {
    subject.call_over_field = [i](const FieldCall& call) {
      const oracle::FieldExpected expected = attention().suppositions[i].over_field(call);
      return FieldAnswer{.outputs = expected.outputs, .gradients = expected.gradients};
    };
    return first_seen(attention(), subject).algebra;
  };
  EXPECT_NE(constant(14).find("as if 1e-6 stood for the 1e-20"), std::string::npos) << constant(14);
  EXPECT_NE(constant(33).find("as if 1e-6 were added to the denominator"), std::string::npos) << constant(33);
  subject.call_over_field = [](FieldCall call) {
    FieldAnswer answer = over_field_by(attention(), call);
    answer.outputs[0].values[0] ^= 1;
    return answer;
  };
  const std::string unexplained = first_seen(attention(), subject).algebra;
  EXPECT_NE(unexplained, "");
  EXPECT_EQ(unexplained.find("as if"), std::string::npos) << unexplained;
}

// Protects: one wrong element of one tensor, output or gradient, is seen, of every kernel. A gradient that does not
// arrive counts as zeros.
TEST(Identity, SeesOneWrongElementOfAnyTensor) {
  for (const Driver* driver : rational_drivers()) {
    const Contract& contract = *driver->contract;
    const auto spoilt = [&](const auto& spoil) {
      Subject subject = right(*driver);
      subject.call_over_field = [driver, spoil](const FieldCall& call) {
        FieldAnswer answer = over_field_by(*driver, call);
        spoil(answer);
        return answer;
      };
      return first_seen(*driver, subject).algebra;
    };
    for (std::size_t j = 0; j < contract.outputs.size(); ++j)
      EXPECT_NE(spoilt([j](FieldAnswer& a) { a.outputs[j].values.back() ^= 1; }).find(contract.outputs[j].name + "("),
                std::string::npos);
    for (std::size_t i = 0; i < contract.inputs.size(); ++i) {
      if (!contract.inputs[i].differentiable) continue;
      const std::string name = "d" + contract.inputs[i].name + "(";
      const auto wrong = [i](FieldAnswer& a) {
        if (a.gradients[i]) a.gradients[i]->values.back() ^= 1;
      };
      EXPECT_NE(spoilt(wrong).find(name), std::string::npos) << contract.kernel << name;
      EXPECT_NE(spoilt([i](FieldAnswer& a) { a.gradients[i].reset(); }).find(name), std::string::npos)
          << contract.kernel << name;
    }
  }
}

// Protects: a form that keeps the answer to its first call of a shape. One draw a case would not see it.
TEST(Identity, DrawsAnewAtTheSameShape) {
  Subject subject = right(attention());
  auto seen = std::make_shared<std::map<std::vector<std::int64_t>, FieldAnswer>>();
  subject.call_over_field = [seen](const FieldCall& call) {
    std::vector<std::int64_t> key{call.bits};
    for (const auto& input : call.inputs)
      for (const std::int64_t extent : input ? input->shape : Shape{}) key.push_back(extent);
    for (const auto& cotangent : call.cotangents) key.push_back(cotangent.has_value());
    return seen->emplace(key, over_field_by(attention(), call)).first->second;
  };
  EXPECT_NE(first_seen(attention(), subject).algebra, "");
}

// Protects: a fault between pieces alone. A form that takes the state it has itself handed out for none; nothing but
// the pieces calls it so.
TEST(Identity, SplitsSeeWhatPassesFromPieceToPiece) {
  Subject subject = right(attention());
  auto handed_out = std::make_shared<std::vector<std::uint64_t>>();
  subject.call_over_field = [handed_out](FieldCall call) {
    if (call.inputs[3] && call.inputs[3]->values == *handed_out)
      std::fill(call.inputs[3]->values.begin(), call.inputs[3]->values.end(), 0);
    FieldAnswer answer = over_field_by(attention(), call);
    *handed_out = answer.outputs[1].values;
    return answer;
  };
  int seen = 0;
  for (const Case& c : cases_of(attention())) {
    if (c.variant == "induction") continue;
    Expectation expectation(attention(), c, 1);
    const bool sees = !identity_property().check(expectation, subject).algebra.empty();
    EXPECT_TRUE(c.variant == "split" || !sees) << label(c);
    seen += sees;
  }
  EXPECT_GT(seen, 0);
}

// Protects: what is no algebra, raises or divides by 0 everywhere is neither right nor wrong, and is said with its
// place.
TEST(Identity, ClaimsNothingWhereItCannotJudge) {
  const auto with = [](FieldAnswer answer) {
    Subject subject;
    subject.call_over_field = [answer](const FieldCall&) { return answer; };
    return first_seen(attention(), subject);
  };
  const Remark exp{.kind = "non-algebraic", .operation = "aten::exp", .place = "form.py:3 in f"};
  const Outcome of_exp = with({.status = FieldStatus::not_algebraic, .remarks = {exp}});
  ASSERT_TRUE(of_exp.not_algebraic);
  EXPECT_EQ(*of_exp.not_algebraic, exp);
  EXPECT_FALSE(of_exp.finding);
  EXPECT_EQ(of_exp.remarks, std::vector{exp});
  const Outcome raised = with({.status = FieldStatus::failed, .message = "wanted a CPU tensor"});
  ASSERT_TRUE(raised.not_algebraic);
  EXPECT_FALSE(raised.finding);
  EXPECT_EQ(raised.not_algebraic->detail, "wanted a CPU tensor");
  const Outcome pole = with({.status = FieldStatus::pole});
  ASSERT_TRUE(pole.not_algebraic);
  EXPECT_EQ(pole.not_algebraic->kind, "pole");
}

// Protects: a pole of one draw is drawn again, and costs no claim.
TEST(Identity, DrawsAgainAtAPole) {
  Subject subject = right(attention());
  auto calls = std::make_shared<int>(0);
  subject.call_over_field = [calls](const FieldCall& call) {
    if ((*calls)++ % 2 == 0) return FieldAnswer{.status = FieldStatus::pole};
    return over_field_by(attention(), call);
  };
  const Case c = cases_of(attention())[2];
  Expectation expectation(attention(), c, 1);
  const Outcome outcome = identity_property().check(expectation, subject);
  EXPECT_FALSE(outcome.not_algebraic);
  EXPECT_TRUE(outcome.escape);
}

// Protects: the arithmetic of the bound. At degree 3 over 3, one draw of GF(2^31-1) lets pass (3 + 3000) / (p - 3003).
TEST(Identity, Certainty) {
  const double one = 3003.0 / (2147483647.0 - 3 - 3000);
  const Certainty narrow = certainty_of({3, 3}, 31), wide = certainty_of({3, 3}, 61);
  EXPECT_EQ(narrow.draws, 3);
  EXPECT_NEAR(narrow.escape / (one * one * one), 1, 1e-12);
  EXPECT_EQ(wide.draws, 2);
  EXPECT_LE(certainty_of({780, 780}, 31).escape, 1e-15);
  EXPECT_THROW(certainty_of({2'000'000, 0}, 31), std::runtime_error);
}

// Protects: the draws. Elements of a tensor, tensors of a call and calls of a case are not alike, and fill the field.
TEST(Identity, PointsAreDrawnFromAllOfTheField) {
  const Case c = cases_of(attention())[3];
  const Expectation expectation(attention(), c, 1);
  const FieldCall first = field_call(expectation, right(attention()), 0),
                  second = field_call(expectation, right(attention()), 1);
  std::map<std::uint64_t, int> seen;
  bool high = false;
  for (const FieldCall* call : {&first, &second})
    for (const auto* list : {&call->inputs, &call->cotangents})
      for (const auto& tensor : *list)
        for (const std::uint64_t x : tensor->values) {
          ++seen[x];
          EXPECT_LT(x, (std::uint64_t{1} << call->bits) - 1);
          high = high || x >> (call->bits - 1) != 0;
        }
  EXPECT_TRUE(high);
  for (const auto& [x, count] : seen) EXPECT_LE(count, 1 + (first.bits == 31)) << x;  // by chance, a few at 31 bits
}

}  // namespace
}  // namespace fractus
