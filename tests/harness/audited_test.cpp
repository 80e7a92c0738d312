// The audit of a form's calls: steps that the algebra does not hold are named, with their place.
#include "harness/audited.h"

#include <gtest/gtest.h>

#include "tests/harness/example.h"

namespace fractus {
namespace {

std::vector<Remark> remarks_of(const std::string& candidate,
                               const std::vector<DType>& dtypes = {DType::float32, DType::float64}) {
  const bool outside = candidate.find(':') != std::string::npos;
  const FormInfo form = outside ? real_workshop().load("linear_attention", candidate, 30s)
                                : *real_workshop().find_form("linear_attention", candidate);
  const Plan plan =
      make_plan({.driver = &driver(), .candidate = form, .preset = "smoke", .dtypes = dtypes}, real_workshop().forms());
  Attached attached(real_workshop(), form, {});
  return audited(driver(), plan, attached);
}

std::string unalgebraic(const std::string& function) {
  return std::string(FRACTUS_SOURCE "/tests/outside/unalgebraic.py:") + function;
}

bool any(const std::vector<Remark>& remarks, const std::string& kind, const std::string& operation,
         const std::string& place, const std::string& detail = "") {
  return std::any_of(remarks.begin(), remarks.end(), [&](const Remark& r) {
    return r.kind == kind && r.operation == operation && r.place.find(place) != std::string::npos &&
           r.detail.find(detail) != std::string::npos && r.count > 0;
  });
}

std::string text_of(const std::vector<Remark>& remarks) {
  std::string text;
  for (const Remark& r : remarks)
    text += r.kind + " " + r.operation + " " + r.place + " " + r.detail + " " + std::to_string(r.count) + "\n";
  return text;
}

bool any(const std::vector<Remark>& remarks, const std::string& kind) {
  return std::any_of(remarks.begin(), remarks.end(), [&](const Remark& r) { return r.kind == kind; });
}

// Protects: each kind of step, forward and backward, with file, line and function.
TEST(Audit, NamesEachKindWithItsPlace) {
  EXPECT_TRUE(any(remarks_of(unalgebraic("half_inside")), "cast", "aten::_to_copy", "unalgebraic.py:23 in half_inside",
                  "float64 to bfloat16"));
  const std::vector<Remark> branching = remarks_of(unalgebraic("branches"));
  EXPECT_TRUE(any(branching, "branch", "aten::_local_scalar_dense", "unalgebraic.py:27 in branches"));
  EXPECT_TRUE(any(branching, "non-algebraic", "aten::max", "in branches"));
  EXPECT_TRUE(any(remarks_of(unalgebraic("exponential")), "non-algebraic", "aten::exp", "in exponential"));
  EXPECT_TRUE(any(remarks_of(unalgebraic("noisy")), "non-deterministic", "aten::rand", "in noisy", "random"));
  EXPECT_TRUE(any(remarks_of(unalgebraic("in_backward")), "non-algebraic", "aten::tanh", "backward"));
}

// Negative control: the same kernel without such a step has comparisons at its cut, and none of the rest but the
// running sums, whose order a GPU does not fix.
TEST(Audit, FindsNothingInAPlainForm) {
  for (const std::string& form : {unalgebraic("plain"), std::string("chunked")}) {
    const std::vector<Remark> remarks = remarks_of(form);
    EXPECT_TRUE(any(remarks, "comparison")) << form;
    for (const char* kind : {"cast", "branch", "non-algebraic"})
      EXPECT_FALSE(any(remarks, kind)) << form << ' ' << kind << ' ' << text_of(remarks);
  }
  EXPECT_TRUE(any(remarks_of(unalgebraic("plain")), "non-deterministic", "aten::cumsum", "in _plain"));
}

// Protects: reports that compare. The same plan gives the same audit.
TEST(Audit, IsTheSameTwice) { EXPECT_EQ(remarks_of("cumsum"), remarks_of("cumsum")); }

}  // namespace
}  // namespace fractus
