// Cutting and joining: what the carry property does to every tensor.
#include "properties/slices.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

namespace fractus {
namespace {

// Protects: the carry property. Pieces joined again are the whole, along any dimension, empty pieces included.
TEST(Slices, JoinedPiecesAreTheWhole) {
  EXPECT_TRUE(rc::check("pieces joined are the whole", [] {
    const Shape shape{*rc::gen::inRange(1, 4), *rc::gen::inRange(1, 5), *rc::gen::inRange(1, 4)};
    const auto dim = static_cast<std::size_t>(*rc::gen::inRange(0, 3));
    Array whole = zeros("x", DType::float64, shape);
    std::iota(whole.values.begin(), whole.values.end(), 1.0);
    const auto cut = *rc::gen::inRange<std::int64_t>(0, shape[dim] + 1);
    RC_ASSERT(joined({slice(whole, dim, 0, cut), slice(whole, dim, cut, shape[dim] - cut)}, dim) == whole);
  }));
}

TEST(Slices, TakeTheRightElements) {
  Array a = zeros("x", DType::float64, {2, 3});
  std::iota(a.values.begin(), a.values.end(), 0.0);
  EXPECT_EQ(slice(a, 1, 1, 2).values, (std::vector<double>{1, 2, 4, 5}));
  EXPECT_EQ(slice(a, 0, 1, 1).values, (std::vector<double>{3, 4, 5}));
}

}  // namespace
}  // namespace fractus
