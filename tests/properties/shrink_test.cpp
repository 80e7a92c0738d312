// Shrinking: it ends, it keeps the way of failing, and it gets where it can.
#include "properties/shrink.h"

#include <gtest/gtest.h>

#include <numeric>

#include "properties/cases.h"

namespace fractus {
namespace {

const Driver& driver() { return *find_driver("linear_attention"); }

Case large() {
  Case c = base_case(driver(), "carry", DType::float32, {{"G", 7}, {"T", 129}, {"D", 8}}, "cancelling");
  c.cotangents = output_names(driver());
  c.pieces = {64, 1, 0, 64};
  c.layouts = {{"q", Layout::sliced}, {"v", Layout::offset}};
  c.settings = {{"block", 64}};
  return c;
}

Finding finding(const std::string& kind, const std::string& tensor) {
  Finding f;
  f.kind = kind;
  f.tensor = tensor;
  return f;
}

// Protects: a small witness. A fault that shows everywhere shrinks to one group, one token, width 1, nothing optional.
TEST(Shrink, ReachesTheSmallestCase) {
  const auto always = [](const Case&) { return std::optional<Finding>(finding("value", "y")); };
  const Shrunk shrunk = shrink(driver(), large(), finding("value", "y"), always, 1000);
  EXPECT_EQ(shrunk.smallest.dims, (Dims{{"G", 1}, {"T", 1}, {"D", 1}}));
  EXPECT_EQ(shrunk.smallest.pieces, std::vector<std::int64_t>{1});
  EXPECT_EQ(shrunk.smallest.absent.size(), 2u);
  EXPECT_EQ(shrunk.smallest.cotangents.size(), 1u);
  EXPECT_TRUE(shrunk.smallest.layouts.empty());
  EXPECT_EQ(shrunk.smallest.settings.at("block"), 1);
}

// Protects: a fault between blocks shrinks its block with the sequence: 3 tokens in blocks of 2, not 129 in blocks
// of 64.
TEST(Shrink, ShrinksABlockWithTheSequence) {
  const auto between_blocks = [](const Case& c) -> std::optional<Finding> {
    if (c.dims.at("T") <= c.settings.at("block") || c.settings.at("block") < 2) return std::nullopt;
    return finding("value", "y");
  };
  Case c = large();
  c.pieces.clear();
  EXPECT_EQ(shrink(driver(), c, finding("value", "y"), between_blocks, 1000).smallest.dims.at("T"), 3);
}

// Protects: the witness shows the fault that was found, not another one met on the way.
TEST(Shrink, KeepsTheKindOfFailure) {
  const auto crash_when_small = [](const Case& c) {
    return std::optional<Finding>(c.dims.at("T") < 40 ? finding("crashed", "") : finding("value", "y"));
  };
  Case c = large();
  c.pieces.clear();
  const Shrunk shrunk = shrink(driver(), c, finding("value", "y"), crash_when_small, 1000);
  EXPECT_EQ(shrunk.finding.kind, "value");
  EXPECT_EQ(shrunk.smallest.dims.at("T"), 40);
}

// Protects: bounded time.
TEST(Shrink, StopsWhenPatienceEnds) {
  int calls = 0;
  const auto count = [&](const Case&) { return ++calls, std::optional<Finding>(); };
  shrink(driver(), large(), finding("value", "y"), count, 17);
  EXPECT_EQ(calls, 17);
}

// Protects: every step is a case that its property can run: pieces sum to the sequence.
TEST(Shrink, KeepsPiecesAndSequenceTogether) {
  auto steps = simpler(driver(), large());
  int seen = 0;
  for (auto c = steps.next(); c; c = steps.next(), ++seen)
    EXPECT_EQ(std::accumulate(c->pieces.begin(), c->pieces.end(), std::int64_t{0}), c->dims.at("T"));
  EXPECT_GT(seen, 10);
}

}  // namespace
}  // namespace fractus
