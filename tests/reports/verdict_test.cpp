// The tighter line: who is set apart for being coarser than the known-good forms.
#include "reports/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reports/facts.h"

namespace fractus {
namespace {

bool set_apart(double candidate, double known_good, std::int64_t cases = 20) {
  return !exceeded({{"rounding", {{"y T 8-15", {candidate, known_good, cases, "rounding float32 T 8"}}}}}).empty();
}

// Protects: the line itself, at the ratios that a count of roundings leads to.
TEST(TighterLine, SetsApartWhatIsFarAboveTheKnownGoodForms) {
  EXPECT_TRUE(set_apart(0.41, 0.1));
  EXPECT_FALSE(set_apart(0.39, 0.1));
  EXPECT_FALSE(set_apart(0.41, 0.1, 9)) << "too few cases";
}

// Protects: right forms where conditioning makes the bound and all are far below it, such as the gradients of a block
// behind a fresh LayerNorm; and that one which rounds to half precision there, 2^13 times as coarse, is still seen.
TEST(TighterLine, AllowsChanceWhereConditioningMakesTheBound) {
  EXPECT_FALSE(set_apart(7e-4, 1e-4));
  EXPECT_FALSE(set_apart(7e-3, 1e-4));
  EXPECT_TRUE(set_apart(8e-3, 1e-4));
  EXPECT_FALSE(set_apart(1e-6, 1e-7));
  EXPECT_TRUE(set_apart(1e-7 * 0x1p13, 1e-7));
}

// Protects: shards and properties are compared together: what one of them shows of the known-good forms counts for all.
TEST(TighterLine, TakesAllPropertiesTogether) {
  const Lines lines{{"gradients", {{"y T 8-15", {0.01, 0.3, 12, ""}}}},
                    {"rounding", {{"y T 8-15", {0.9, 0.01, 3, ""}}}}};
  EXPECT_TRUE(exceeded(lines).empty());
}

Result concluded(PropertyResult record) {
  Result result;
  record.name = "identity";
  record.claims = {"over GF(2^61-1), for every T"};
  result.properties = {std::move(record)};
  conclude(result);
  return result;
}

// Protects: a difference of algebra that no floats show is never DIFFERENT, and never passes.
TEST(Algebra, ADifferenceBelowRoundingIsUndecided) {
  PropertyResult record{.planned = 1, .cases = 1};
  record.algebra = "over GF(2^61-1), y(0, 1) is 5 where the definition gives 7";
  const Result result = concluded(record);
  EXPECT_EQ(result.properties[0].verdict, "UNDECIDED");
  EXPECT_EQ(result.properties[0].reason, "the algebra differs below rounding: " + record.algebra);
  EXPECT_TRUE(claims_of(result.properties[0]).empty());
  ASSERT_FALSE(result.reasons.empty());
  EXPECT_EQ(result.reasons[0], "identity: " + result.properties[0].reason);
  record.finding = Finding{.kind = "value", .tensor = "y"};
  EXPECT_EQ(concluded(record).verdict, Verdict::different);
}

// Protects: a form that is not algebraic is judged by all else. No reason keeps its verdict from EQUIVALENT, and what
// follows from all cases of the property is claimed only where they passed.
TEST(Algebra, NotAlgebraicIsNoDoubt) {
  PropertyResult record{.planned = 9, .cases = 3};
  record.not_algebraic = Remark{.kind = "non-algebraic", .operation = "aten::exp"};
  const Result result = concluded(record);
  EXPECT_EQ(result.properties[0].verdict, "NOT ALGEBRAIC");
  EXPECT_EQ(result.properties[0].reason, "");
  EXPECT_TRUE(claims_of(result.properties[0]).empty());
  EXPECT_EQ(std::count_if(result.reasons.begin(), result.reasons.end(),
                          [](const std::string& reason) { return reason.starts_with("identity"); }),
            0);
  EXPECT_EQ(concluded({.planned = 9, .cases = 3}).properties[0].verdict, "UNDECIDED") << "cut short";
  EXPECT_EQ(claims_of(concluded({.planned = 3, .cases = 3}).properties[0]).size(), 1U);
}

}  // namespace
}  // namespace fractus
