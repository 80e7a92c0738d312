// Candidates that harm the harness: what they do ends as their verdict, and as nobody else's.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/judge.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

Result judged(const std::string& candidate, const std::string& property) {
  const Plan plan = make_plan({.driver = find_driver("linear_attention"),
                               .candidate = *workshop().find_form("linear_attention", candidate),
                               .preset = "smoke",
                               .seed = 3,
                               .only = {property}},
                              workshop().forms());
  JudgeSettings settings;
  settings.partial = true;
  settings.fixtures = std::filesystem::temp_directory_path() / ("fractus-hostile-" + std::to_string(getpid()));
  Result result = judge(workshop(), *find_driver("linear_attention"), plan, settings);
  std::filesystem::remove_all(settings.fixtures);
  return result;
}

void expect_failed(const std::string& candidate, const std::string& property, const std::string& words) {
  const Result result = judged(candidate, property);
  EXPECT_EQ(result.verdict, Verdict::failed) << candidate;
  ASSERT_FALSE(result.reasons.empty()) << candidate;
  EXPECT_NE(result.reasons.front().find(words), std::string::npos) << candidate << ": " << result.reasons.front();
  for (const Kill& kill : result.kills) EXPECT_FALSE(kill.killed) << kill.form << " by the deed of " << candidate;
}

// Protects: a candidate that ends its parent gets a verdict, and takes no other form along.
TEST(Hostile, WhoEndsItsParentFails) {
  expect_failed("test_kills_parent", "contract", "it ended the process that had started it: signal 9 (Killed)");
}

// Protects: the declaration is the candidate's code too. It runs last, and cost the verdict on all that ran before.
TEST(Hostile, WhoseDeclarationFailsFails) {
  expect_failed("test_declares_by_raising", "memory", "its declared memory cannot be had: it raised: what for");
  expect_failed("test_declares_by_hanging", "memory", "its declared memory cannot be had: no answer within 10000 ms");
  expect_failed("test_declares_too_much", "memory", "its declared memory cannot be had: it is 9223372036854775807");
  expect_failed("test_declares_less_than_nothing", "memory", "its declared memory cannot be had: it is -1 elements");
}

}  // namespace
}  // namespace fractus
