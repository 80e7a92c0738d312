// Each operation of elements against Boost's integers, over inputs of any strides and over both fields.
#include "tests/field/device.h"

namespace fractus {
namespace {

using test::device;
using test::drawn;
using test::in_each_kind;
using test::Integer;
using test::integers;
using test::Kind;
using test::modulo;
using test::residues;

// f over broadcast residues, as a tensor of residues.
template <class F>
at::Tensor expected(std::vector<at::Tensor> inputs, int bits, F f) {
  for (at::Tensor& x : inputs)
    if (x.device().is_privateuseone()) x = residues(x);
  inputs = at::broadcast_tensors(inputs);
  std::vector<std::vector<Integer>> values;
  for (const at::Tensor& x : inputs) values.push_back(integers(x));
  std::vector<Integer> result;
  for (std::size_t i = 0; i < values.front().size(); ++i) {
    std::vector<Integer> arguments;
    for (const auto& each : values) arguments.push_back(each[i]);
    result.push_back(modulo(f(arguments), bits));
  }
  return test::tensor_of(result, inputs.front().sizes());
}

using Values = const std::vector<Integer>&;

// Protects sums, differences and products, with a factor and without, into a new tensor, into the first one and into
// one given.
TEST(FieldArithmetic, SumsDifferencesAndProducts) {
  in_each_kind("a + f b, a - f b, f b - a, a b", [](const Kind& kind) {
    const auto shape = test::drawn_shape();
    const at::Tensor a = drawn(shape, kind), b = drawn(test::narrowed(shape), kind);
    const auto f = test::from_to(-3, 4);
    const at::Tensor sum = expected({a, b}, kind.bits, [&](Values x) { return x[0] + f * x[1]; });
    test::expect_same(at::add(a, b, f), sum);
    test::expect_same(a.clone().add_(b, f), sum);
    at::Tensor out = at::empty({0}, a.options());
    test::expect_same(at::add_out(out, a, b, f), sum);
    test::expect_same(at::sub(a, b, f), expected({a, b}, kind.bits, [&](Values x) { return x[0] - f * x[1]; }));
    test::expect_same(at::rsub(a, b, f), expected({a, b}, kind.bits, [&](Values x) { return x[1] - f * x[0]; }));
    const at::Tensor product = expected({a, b}, kind.bits, [](Values x) { return x[0] * x[1]; });
    test::expect_same(a * b, product);
    test::expect_same(b * a, product);
    test::expect_same(a.clone().mul_(b), product);
    test::expect_same(-a, expected({a}, kind.bits, [](Values x) { return -x[0]; }));
    test::expect_same(a.square(), expected({a}, kind.bits, [](Values x) { return x[0] * x[0]; }));
    test::expect_same(a.clone().neg_(), expected({a}, kind.bits, [](Values x) { return -x[0]; }));
  });
}

// Protects constants beside tensors, on either side, and 0-dim tensors of the CPU.
TEST(FieldArithmetic, Constants) {
  in_each_kind("a + 1/3, 0.1 - a, a 2.5, a / 3", [](const Kind& kind) {
    const at::Tensor a = drawn(test::drawn_shape(), kind);
    const Integer third = test::inverse(3, kind.bits), tenth = test::inverse(10, kind.bits),
                  half = test::inverse(2, kind.bits);
    test::expect_same(a + 1.0 / 3, expected({a}, kind.bits, [&](Values x) { return x[0] + third; }));
    test::expect_same(0.1 - a, expected({a}, kind.bits, [&](Values x) { return tenth - x[0]; }));
    test::expect_same(a * 2.5, expected({a}, kind.bits, [&](Values x) { return x[0] * 5 * half; }));
    test::expect_same(a / 3, expected({a}, kind.bits, [&](Values x) { return x[0] * third; }));
    test::expect_same(a * at::scalar_tensor(0.1f, at::kFloat),
                      expected({a}, kind.bits, [&](Values x) { return x[0] * tenth; }));
    test::expect_same(at::scalar_tensor(-7, at::kLong) + a,
                      expected({a}, kind.bits, [&](Values x) { return x[0] - 7; }));
  });
}

// Protects division by many divisors at once: quotients, reciprocals and powers, past a block of 1024 inversions too.
TEST(FieldArithmetic, QuotientsReciprocalsAndPowers) {
  in_each_kind("a / b, 1 / b, b^n", [](const Kind& kind) {
    auto shape = test::drawn_shape();
    if (test::from_to(0, 20) == 0) shape = {3, 700};
    const at::Tensor a = drawn(shape, kind);
    at::Tensor b = drawn(test::narrowed(shape), kind);
    b = at::where(b.eq(0), at::ones({}, b.options()), b).expand(b.sizes());
    const auto divided = [&](Values x) { return x[0] * test::inverse(x[1], kind.bits); };
    test::expect_same(a / b, expected({a, b}, kind.bits, divided));
    test::expect_same(a.clone().div_(b), expected({a, b}, kind.bits, divided));
    test::expect_same(b.reciprocal(),
                      expected({b}, kind.bits, [&](Values x) { return test::inverse(x[0], kind.bits); }));
    const auto n = test::from_to(-5, 6);
    const auto power = [&](const Integer& x, std::int64_t e) {
      return Integer(powm(e < 0 ? test::inverse(x, kind.bits) : x, std::abs(e), test::modulus(kind.bits)));
    };
    test::expect_same(at::pow(b, n), expected({b}, kind.bits, [&](Values x) { return power(x[0], n); }));
    test::expect_same(at::pow(b, static_cast<double>(n)),
                      expected({b}, kind.bits, [&](Values x) { return power(x[0], n); }));
    const at::Tensor exponents = test::drawn_whole(b.sizes(), -4, 5);
    const at::Tensor powers =
        expected({b, exponents}, kind.bits, [&](Values x) { return power(x[0], static_cast<std::int64_t>(x[1])); });
    test::expect_same(at::pow(b, exponents.to(b.device())), powers);
  });
}

TEST(FieldArithmetic, ProductsAndQuotientsAdded) {
  in_each_kind("addcmul, addcdiv, lerp", [](const Kind& kind) {
    const auto shape = test::drawn_shape();
    const at::Tensor a = drawn(shape, kind), b = drawn(test::narrowed(shape), kind);
    at::Tensor c = drawn(test::narrowed(shape), kind);
    const auto f = test::from_to(-3, 4);
    test::expect_same(at::addcmul(a, b, c, f),
                      expected({a, b, c}, kind.bits, [&](Values x) { return x[0] + f * x[1] * x[2]; }));
    const auto between = [](Values x) { return x[0] + x[2] * (x[1] - x[0]); };
    test::expect_same(at::lerp(a, b.expand(shape), c), expected({a, b, c}, kind.bits, between));
    test::expect_same(at::lerp(a, b, f),
                      expected({a, b}, kind.bits, [&](Values x) { return x[0] + f * (x[1] - x[0]); }));
    c = at::where(c.eq(0), at::ones({}, c.options()), c);
    test::expect_same(at::addcdiv(a, b, c, f), expected({a, b, c}, kind.bits, [&](Values x) {
                        return x[0] + f * x[1] * test::inverse(x[2], kind.bits);
                      }));
  });
}

// Protects sums over dimensions from overflow, and from a dimension or a tail that is left out.
TEST(FieldArithmetic, SumsAndProductsOverDimensions) {
  in_each_kind("sum, mean, cumsum, prod, cumprod", [](const Kind& kind) {
    auto shape = test::drawn_shape(3, 4);
    if (shape.empty()) shape = {2};
    if (test::from_to(0, 10) == 0) shape = {1000};
    const at::Tensor a = drawn(shape, kind);
    const auto dim = test::from_to(0, a.dim());
    const bool keep = test::from_to(0, 2) == 0;
    const at::Tensor moved = residues(a).movedim(dim, -1).contiguous();
    const std::int64_t n = moved.size(-1);
    const std::vector<Integer> x = integers(moved);
    auto outer = moved.sizes().vec();
    outer.pop_back();
    const auto shaped = [&](const std::vector<Integer>& of) {
      const at::Tensor flat = test::tensor_of(of, outer);
      return keep ? flat.unsqueeze(dim) : flat;
    };
    std::vector<Integer> sums, products, means, partial_sums = x, partial_products = x;
    const std::size_t rows = n == 0 ? static_cast<std::size_t>(c10::multiply_integers(outer)) : x.size() / n;
    for (std::size_t i = 0; i < rows; ++i) {
      Integer sum = 0, product = 1;
      for (std::int64_t j = 0; j < n; ++j) {
        sum = modulo(sum + x[i * n + j], kind.bits), product = modulo(product * x[i * n + j], kind.bits);
        partial_sums[i * n + j] = sum, partial_products[i * n + j] = product;
      }
      sums.push_back(sum), products.push_back(product);
      if (n != 0) means.push_back(modulo(sum * test::inverse(n, kind.bits), kind.bits));
    }
    test::expect_same(a.sum(dim, keep), shaped(sums));
    test::expect_same(a.prod(dim, keep), shaped(products));
    if (n != 0) test::expect_same(a.mean(dim, keep), shaped(means));
    test::expect_same(a.cumsum(dim), test::tensor_of(partial_sums, moved.sizes()).movedim(-1, dim));
    test::expect_same(a.cumprod(dim), test::tensor_of(partial_products, moved.sizes()).movedim(-1, dim));
    Integer all = 0, product = 1;
    for (const Integer& each : integers(residues(a))) all += each, product = modulo(product * each, kind.bits);
    test::expect_same(a.sum(), test::tensor_of({modulo(all, kind.bits)}, {}));
    test::expect_same(a.prod(), test::tensor_of({product}, {}));
    std::vector<std::int64_t> every(static_cast<std::size_t>(a.dim()));
    for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::int64_t>(i);
    test::expect_same(a.sum(every), test::tensor_of({modulo(all, kind.bits)}, {}));
  });
}

// Residues that all are p-1 are what overflows first.
TEST(FieldArithmetic, LongSumsOfTheLargestResidue) {
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    constexpr std::int64_t n = 100003;
    const at::Tensor a = device().tensor_of(at::full({n}, (std::int64_t{1} << kind.bits) - 2, at::kLong), kind.type);
    EXPECT_EQ(integers(residues(a.sum()))[0], modulo(-n, kind.bits));
    EXPECT_EQ(integers(residues(a.cumsum(0)[n - 1]))[0], modulo(-n, kind.bits));
    EXPECT_EQ(integers(residues(a.mean()))[0], modulo(-1, kind.bits));
  }
}

TEST(FieldArithmetic, Variance) {
  in_each_kind("var", [](const Kind& kind) {
    const at::Tensor a = drawn({3, test::from_to(2, 6)}, kind);
    const std::int64_t n = a.size(1);
    std::vector<Integer> wanted;
    const std::vector<Integer> x = integers(residues(a));
    for (std::int64_t i = 0; i < 3; ++i) {
      Integer sum = 0, squares = 0;
      for (std::int64_t j = 0; j < n; ++j) sum += x[i * n + j], squares += x[i * n + j] * x[i * n + j];
      wanted.push_back(modulo((n * squares - sum * sum) * test::inverse(n * (n - 1), kind.bits), kind.bits));
    }
    test::expect_same(a.var(1), test::tensor_of(wanted, {3}));
  });
}

// The axioms of a field, by the device's own operations: what two wrong operations agree upon, a third one does not.
TEST(FieldArithmetic, Axioms) {
  in_each_kind("axioms", [](const Kind& kind) {
    const auto shape = test::drawn_shape();
    const at::Tensor a = drawn(shape, kind), b = drawn(shape, kind), c = drawn(shape, kind);
    const auto same = [](const at::Tensor& x, const at::Tensor& y) { test::expect_same(x, residues(y)); };
    same((a + b) + c, a + (b + c));
    same(a + b, b + a);
    same((a * b) * c, a * (b * c));
    same(a * b, b * a);
    same(a * (b + c), a * b + a * c);
    same(a + at::zeros_like(a), a);
    same(a * at::ones_like(a), a);
    same(a + (-a), at::zeros_like(a));
    const at::Tensor nonzero = at::where(a.eq(0), at::ones_like(a), a);
    same(nonzero * nonzero.reciprocal(), at::ones_like(a));
  });
}

// Types beside each other: whole numbers and truth values count as themselves, and the result has torch's type.
TEST(FieldArithmetic, WholeNumbersAndTruthValuesBesideFloats) {
  in_each_kind("a + n, a t, n / m", [](const Kind& kind) {
    const auto shape = test::drawn_shape();
    const at::Tensor a = drawn(shape, kind);
    const at::Tensor n = test::drawn_whole(shape, -9, 10), t = test::drawn_whole(shape, 0, 2);
    const at::Tensor sum = a + n.to(a.device());
    RC_ASSERT(sum.scalar_type() == kind.type);
    test::expect_same(sum, expected({a, n}, kind.bits, [](Values x) { return x[0] + x[1]; }));
    test::expect_same(a * t.to(at::kBool).to(a.device()),
                      expected({a, t}, kind.bits, [](Values x) { return x[0] * x[1]; }));
    const at::Tensor m = test::drawn_whole(shape, 1, 10);
    test::expect_same(n.to(a.device()) / m.to(a.device()),
                      expected({n, m}, kind.bits, [&](Values x) { return x[0] * test::inverse(x[1], kind.bits); }));
    test::expect_same(n.to(a.device()).sum(at::kDouble),
                      test::tensor_of({modulo(integers(n.sum())[0], kind.bits)}, {}));
    RC_ASSERT(at::equal((n.to(a.device()) * 2 + 1).to(at::kCPU), n * 2 + 1));  // no float takes part
  });
  device().use(31);
  const at::Tensor a = device().tensor_of(at::ones({2}, at::kLong), at::kFloat), b = a.to(at::kDouble);
  EXPECT_EQ((a + b).scalar_type(), at::kDouble);
  EXPECT_EQ((a + 1.5).scalar_type(), at::kFloat);
}

// A part of a tensor that is added to another part of it, and a target whose elements share memory, are torch's errors.
TEST(FieldArithmetic, OverlappingTargetsAreRefused) {
  device().use(61);
  const at::Tensor a = device().tensor_of(at::arange(6, at::kLong), at::kDouble);
  EXPECT_NE(test::error_of([&] { a.narrow(0, 1, 5).add_(a.narrow(0, 0, 5)); }).find("single memory location"),
            std::string::npos);
  at::Tensor out = a.narrow(0, 1, 5);
  EXPECT_NE(
      test::error_of([&] { at::add_out(out, a.narrow(0, 0, 5), a.narrow(0, 0, 5)); }).find("single memory location"),
      std::string::npos);
  EXPECT_NE(test::error_of([&] { a.narrow(0, 0, 1).expand({4}).add_(1); }).find("single memory location"),
            std::string::npos);
}

}  // namespace
}  // namespace fractus
