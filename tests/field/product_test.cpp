// Matrix products against the sums that they are, by Boost's integers.
#include "tests/field/device.h"

namespace fractus {
namespace {

using test::device;
using test::drawn;
using test::in_each_kind;
using test::Integer;
using test::integers;
using test::Kind;
using test::residues;

// (batch, m, k) times (batch, k, n) of residues, of which `device` has no part.
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, int bits) {
  const std::vector<Integer> x = integers(a), y = integers(b);
  const std::int64_t m = a.size(1), depth = a.size(2), n = b.size(2);
  std::vector<Integer> result;
  for (std::int64_t g = 0; g < a.size(0); ++g)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        Integer sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) sum += x[(g * m + i) * depth + k] * y[(g * depth + k) * n + j];
        result.push_back(test::modulo(sum, bits));
      }
  return test::tensor_of(result, {a.size(0), m, n});
}

at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, const Kind& kind) {
  return multiplied(residues(a), residues(b), kind.bits);
}

at::Tensor plus(const at::Tensor& residues_of_a, const at::Tensor& residues_of_b, std::int64_t beta, std::int64_t alpha,
                int bits) {
  const at::Tensor a = residues_of_a.expand(residues_of_b.sizes());
  const std::vector<Integer> x = integers(a), y = integers(residues_of_b);
  std::vector<Integer> result;
  for (std::size_t i = 0; i < x.size(); ++i) result.push_back(test::modulo(beta * x[i] + alpha * y[i], bits));
  return test::tensor_of(result, residues_of_b.sizes());
}

// Protects every matrix product that torch has, over inputs of any strides and of no elements.
TEST(FieldProduct, EachOfTorchsProducts) {
  in_each_kind("products", [](const Kind& kind) {
    const std::int64_t batch = test::from_to(0, 4), m = test::from_to(0, 6), k = test::from_to(0, 6),
                       n = test::from_to(0, 6);
    const at::Tensor a = drawn({batch, m, k}, kind), b = drawn({batch, k, n}, kind), c = drawn({batch, m, n}, kind);
    const at::Tensor product = multiplied(a, b, kind);
    test::expect_same(at::bmm(a, b), product);
    test::expect_same(at::matmul(a, b), product);
    test::expect_same(at::einsum("gmk,gkn->gmn", {a, b}), product);
    const std::int64_t beta = test::from_to(-2, 3), alpha = test::from_to(-2, 3);
    test::expect_same(at::baddbmm(c, a, b, beta, alpha), plus(residues(c), product, beta, alpha, kind.bits));
    test::expect_same(c.clone().baddbmm_(a, b, beta, alpha), plus(residues(c), product, beta, alpha, kind.bits));
    const at::Tensor d = drawn({m, n}, kind);
    at::Tensor sum = at::zeros({m, n}, at::kLong);
    for (std::int64_t g = 0; g < batch; ++g) sum = plus(sum, product[g], 1, 1, kind.bits);
    test::expect_same(at::addbmm(d, a, b, beta, alpha), plus(residues(d), sum, beta, alpha, kind.bits));

    const at::Tensor left = drawn({m, k}, kind), right = drawn({k, n}, kind), row = drawn({n}, kind),
                     vector = drawn({k}, kind);
    const at::Tensor flat = multiplied(left.unsqueeze(0), right.unsqueeze(0), kind).squeeze(0);
    test::expect_same(at::mm(left, right), flat);
    at::Tensor out = at::empty({0}, left.options());
    test::expect_same(at::mm_out(out, left, right), flat);
    test::expect_same(at::addmm(row, left, right, beta, alpha), plus(residues(row), flat, beta, alpha, kind.bits));
    test::expect_same(at::linear(left, right.t(), row), plus(residues(row), flat, 1, 1, kind.bits));
    const at::Tensor at_vector = multiplied(left.unsqueeze(0), vector.view({1, k, 1}), kind).view({m});
    test::expect_same(at::mv(left, vector), at_vector);
    test::expect_same(at::matmul(left, vector), at_vector);
    test::expect_same(at::addmv(drawn({m}, kind), left, vector, 0, 1), at_vector);
    test::expect_same(at::dot(vector, vector),
                      multiplied(vector.view({1, 1, k}), vector.view({1, k, 1}), kind).squeeze());
    test::expect_same(at::outer(row, vector), multiplied(row.view({1, n, 1}), vector.view({1, 1, k}), kind).squeeze(0));
  });
}

// Protects the borders of tiles, and the bounds that make each sum of pieces exact: contractions longer than any of
// them of the residues whose pieces are the largest, in all places and at random ones.
TEST(FieldProduct, ExtremeResiduesAndLongContractions) {
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    const std::int64_t p = (std::int64_t{1} << kind.bits) - 1;
    const std::vector<std::int64_t> extremes = {
        p - 1,
        p / 2,
        p / 2 + 1,
        (std::int64_t{1} << 19) - 1,
        std::int64_t{1} << 19,
        ((std::int64_t{1} << 19) | (std::int64_t{1} << 14)) + (p / 2 & ~((std::int64_t{1} << 21) - 1))};
    for (const std::int64_t depth : {255, 256, 257, 1000, 5000})
      for (const std::int64_t extreme : extremes) {
        const at::Tensor a = at::full({1, 2, depth}, extreme, at::kLong),
                         b = at::full({1, depth, 2}, extreme, at::kLong);
        const Integer wanted = test::modulo(Integer(extreme) * extreme * depth, kind.bits);
        const at::Tensor got = at::bmm(device().tensor_of(a, kind.type), device().tensor_of(b, kind.type));
        for (const Integer& each : integers(residues(got)))
          EXPECT_EQ(each, wanted) << kind.bits << ' ' << depth << ' ' << extreme;
      }
  }
  in_each_kind("tiles", [](const Kind& kind) {
    const std::int64_t m = test::from_to(120, 140), k = test::from_to(250, 264), n = test::from_to(1, 4);
    const bool wide = test::from_to(0, 2) == 0;
    const at::Tensor a = drawn({wide ? n : m, k}, kind), b = drawn({k, wide ? m : n}, kind);
    test::expect_same(at::mm(a, b), multiplied(a.unsqueeze(0), b.unsqueeze(0), kind).squeeze(0));
  });
}

// Protects the bounds themselves: pieces of the largest size, all of one sign and with odd sums, so that a sum beyond
// 2^53 would be rounded. (With one extreme in all places it would not: such a sum has many zeros at its end.)
TEST(FieldProduct, SumsOfTheLargestPiecesAreExact) {
  test::in_each_kind("large pieces", [](const Kind& kind) {
    const std::int64_t depth = *rc::gen::element<std::int64_t>(256, 512, 9000);
    const auto below = [&](std::int64_t most) { return most - test::drawn_whole({depth}, 0, 100); };
    const auto large = [&] {
      return below(1 << 19) + below(1 << 19) * (1 << 20) + below((1 << 20) - 1) * (std::int64_t{1} << 40);
    };
    const at::Tensor a = (kind.bits == 31 ? below((1 << 30) - 1) : large()).view({1, 1, depth});
    const at::Tensor b = (kind.bits == 31 ? below(32767 * (1 << 15)) : large()).view({1, depth, 1});
    test::expect_same(at::bmm(device().tensor_of(a, kind.type), device().tensor_of(b, kind.type)),
                      multiplied(a, b, kind.bits));
  });
}

// Shapes and types that have no product are errors that say so, and no reading beyond a tensor's end.
TEST(FieldProduct, WrongShapesAreErrors) {
  device().use(31);
  const auto zeros = [](std::vector<std::int64_t> shape, at::ScalarType type = at::kFloat) {
    return device().tensor_of(at::zeros(shape, at::kLong), type);
  };
  EXPECT_NE(test::error_of([&] { at::mm(zeros({2, 3}), zeros({2, 3})); }).find("shapes"), std::string::npos);
  EXPECT_NE(test::error_of([&] { at::bmm(zeros({2, 3, 3}), zeros({1, 3, 3})); }).find("shapes"), std::string::npos);
  EXPECT_NE(test::error_of([&] { at::dot(zeros({2}), zeros({3})); }).find("length"), std::string::npos);
  EXPECT_NE(test::error_of([&] {
              at::mm(zeros({2, 3}), zeros({3, 2}, at::kDouble));
            }).find("one type"),
            std::string::npos);
}

}  // namespace
}  // namespace fractus
