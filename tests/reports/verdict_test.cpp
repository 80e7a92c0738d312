// The tighter line: who is set apart for being coarser than the known-good forms.
#include "reports/verdict.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fractus
