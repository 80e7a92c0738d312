// A form's own code over a finite field, from the call to the answer: in another process, on the device `field`.
#include <gtest/gtest.h>

#include <random>

#include "harness/attached.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

Residues random_residues(std::string name, Shape shape, int bits, std::mt19937_64& engine) {
  Residues residues{std::move(name), std::move(shape), {}};
  std::uniform_int_distribution<std::uint64_t> element(1, (std::uint64_t{1} << bits) - 2);
  residues.values.resize(static_cast<std::size_t>(element_count(residues.shape)));
  for (std::uint64_t& x : residues.values) x = element(engine);
  return residues;
}

// A call of linear_attention, its block of 4 in two and a half.
FieldCall point(const std::string& form, int bits, std::uint64_t seed = 1) {
  constexpr std::int64_t G = 2, T = 10, D = 3;
  std::mt19937_64 engine(seed);
  const auto draw = [&](const char* name, Shape shape) {
    return random_residues(name, std::move(shape), bits, engine);
  };
  FieldCall call;
  call.kernel = "linear_attention";
  call.form = form;
  if (form == "chunked" || form == "chunked_tail") call.settings["block"] = 4;
  call.bits = bits;
  call.inputs = {draw("q", {G, T, D}), draw("k", {G, T, D}), draw("v", {G, T, D}), draw("S0", {G, D, D}),
                 draw("z0", {G, D})};
  call.cotangents = {draw("y", {G, T, D}), draw("S", {G, D, D}), draw("z", {G, D})};
  call.gradients = {true, true, true, true, true};
  return call;
}

FieldAnswer answer(const FieldCall& call) {
  static std::map<std::string, Attached> attached;  // by form
  auto found = attached.find(call.form);
  if (found == attached.end()) {
    const FormInfo form = call.form.find(':') == std::string::npos ? *real_workshop().find_form(call.kernel, call.form)
                                                                   : real_workshop().load(call.kernel, call.form, 30s);
    found = attached.emplace(call.form, Attached(real_workshop(), form, {})).first;
  }
  return found->second.subject().call_over_field(call);
}

std::string unalgebraic(const std::string& function) {
  return std::string(FRACTUS_SOURCE "/tests/outside/unalgebraic.py:") + function;
}

// Protects: the whole way. Forms of other orders and blockings, in C++ and in Python, give the same residues in
// outputs and gradients; another draw, or another field, gives others.
TEST(OverField, RightFormsAgreeToTheBit) {
  for (const int bits : {31, 61}) {
    const FieldAnswer first = answer(point("looped", bits));
    ASSERT_EQ(first.status, FieldStatus::ok) << first.message;
    ASSERT_EQ(first.outputs.size(), 3u);
    ASSERT_EQ(first.gradients.size(), 5u);
    for (const std::string& form : {std::string("einsum"), std::string("cumsum"), std::string("chunked"),
                                    std::string("chunked_tail"), unalgebraic("plain"), unalgebraic("half_inside")}) {
      const FieldAnswer other = answer(point(form, bits));
      ASSERT_EQ(other.status, FieldStatus::ok) << form << ": " << other.message;
      EXPECT_EQ(other.outputs, first.outputs) << form << " over " << bits << " bits";
      EXPECT_EQ(other.gradients, first.gradients) << form << " over " << bits << " bits";
    }
    EXPECT_NE(answer(point("chunked", bits, 2)).outputs, first.outputs);
  }
}

// Negative control: a known-wrong form differs where its fault is, and there alone.
TEST(OverField, AWrongGradientIsAnotherOne) {
  const FieldAnswer right = answer(point("looped", 61)), wrong = answer(point("wrong_dk_lacks_denominator", 61));
  ASSERT_EQ(right.status, FieldStatus::ok) << right.message;
  ASSERT_EQ(wrong.status, FieldStatus::ok) << wrong.message;
  EXPECT_EQ(wrong.outputs, right.outputs);
  for (std::size_t i = 0; i < right.gradients.size(); ++i) EXPECT_EQ(wrong.gradients[i] == right.gradients[i], i != 1);
}

// Protects: what is said of a form that is not algebraic: the operation, and where it stands; also in a backward, and
// where the form catches the exception and goes on.
TEST(OverField, NamesWhatIsNotAlgebraic) {
  const auto stopped_by = [](const std::string& function, const std::string& operation, const std::string& place) {
    const FieldAnswer its = answer(point(unalgebraic(function), 31));
    EXPECT_EQ(static_cast<int>(its.status), static_cast<int>(FieldStatus::not_algebraic)) << function << ": " << its.message;
    if (its.remarks.empty()) return void(ADD_FAILURE() << function);
    EXPECT_EQ(its.remarks.back().operation, operation) << function;
    EXPECT_NE(its.remarks.back().place.find(place), std::string::npos) << its.remarks.back().place;
  };
  stopped_by("exponential", "aten::exp", "unalgebraic.py:33 in exponential");
  stopped_by("branches", "aten::max", "unalgebraic.py:27 in branches");
  stopped_by("noisy", "aten::uniform", "in noisy");
  stopped_by("in_backward", "aten::tanh", "backward");
  stopped_by("catches", "aten::round", "forward");
}

// Protects: remarks on what passes: a cast to a type that is too narrow for the field keeps the algebra, and is listed.
TEST(OverField, ListsCastsAndComparisons) {
  const FieldAnswer its = answer(point(unalgebraic("half_inside"), 31));
  const auto any = [&](const std::string& kind, const std::string& detail) {
    return std::any_of(its.remarks.begin(), its.remarks.end(), [&](const Remark& r) {
      return r.kind == kind && r.detail.find(detail) != std::string::npos && r.place.find("unalgebraic.py:") == 0;
    });
  };
  EXPECT_TRUE(any("cast", "bfloat16"));
  EXPECT_TRUE(any("comparison", ""));
}

// Protects: the trace that induction over blocks looks at: more blocks are more steps, and no trace where none is
// wanted.
TEST(OverField, TracesWhereAsked) {
  FieldCall call = point("chunked", 61);
  EXPECT_TRUE(answer(call).trace.empty());
  call.traced = true;
  const std::size_t steps = answer(call).trace.size();
  EXPECT_GT(steps, 0u);
  call.settings["block"] = 2;
  const FieldAnswer more = answer(call);
  EXPECT_GT(more.trace.size(), steps) << more.message;
}

}  // namespace
}  // namespace fractus
