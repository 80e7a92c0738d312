// What only moves elements, against torch's CPU on the residues as whole numbers; what also adds, against Boost's.
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

// Protects each operation that moves: on the device as on the CPU, where whole numbers have nothing to round.
TEST(FieldMovement, MovesAsTheCpuDoes) {
  in_each_kind("movement", [](const Kind& kind) {
    const std::int64_t rows = test::from_to(1, 5), columns = test::from_to(1, 5);
    const at::Tensor x = drawn({rows, columns}, kind), r = residues(x);
    const at::Tensor y = drawn({rows, columns}, kind), s = residues(y);
    const std::int64_t diagonal = test::from_to(-3, 4);
    const at::Tensor index = test::drawn_whole({rows, columns}, 0, rows), few = test::drawn_whole({3}, 0, rows);
    const at::Tensor mask = test::drawn_whole({rows, columns}, 0, 2).to(at::kBool);
    const auto there = [&](const at::Tensor& of) { return of.to(x.device()); };
    const auto same = [&](const at::Tensor& got, const at::Tensor& wanted) {
      RC_ASSERT(got.scalar_type() == kind.type);
      test::expect_same(got, wanted);
    };
    same(x.tril(diagonal), r.tril(diagonal));
    same(x.triu(diagonal), r.triu(diagonal));
    same(x.clone().tril_(diagonal), r.clone().tril_(diagonal));
    same(x.flip({0, 1}), r.flip({0, 1}));
    same(x.roll({1, 2}, {0, 1}), r.roll({1, 2}, {0, 1}));
    same(x.gather(0, there(index)), r.gather(0, index));
    same(x.index_select(0, there(few)), r.index_select(0, few));
    same(at::index(x, {there(few)}), at::index(r, {few}));
    same(at::index(x, {few}), at::index(r, {few}));
    same(at::index(x, {there(mask)}), at::index(r, {mask}));
    same(x.take(there(index)), r.take(index));
    same(x.masked_select(there(mask)), r.masked_select(mask));
    same(at::where(there(mask), x, y), at::where(mask, r, s));
    same(at::where(there(mask), x, 0), at::where(mask, r, 0));
    same(x.masked_fill(there(mask), 3), r.masked_fill(mask, 3));
    same(x.masked_scatter(there(mask), y), r.masked_scatter(mask, s.contiguous()));
    same(x.scatter(0, there(at::arange(rows).flip(0).unsqueeze(1).expand({rows, columns})), y),
         r.scatter(0, at::arange(rows).flip(0).unsqueeze(1).expand({rows, columns}), s));
    same(x.scatter(0, there(index), 5), r.scatter(0, index, 5));
    same(x.index_fill(0, there(few), 7), r.index_fill(0, few, 7));
    same(x.index_copy(0, there(at::arange(rows).flip(0)), y), r.index_copy(0, at::arange(rows).flip(0), s));
    same(x.index_put({there(at::arange(rows))}, y), r.index_put({at::arange(rows)}, s));
    same(at::cat({x, y}, 1), at::cat({r, s}, 1));
    same(at::stack({x, y}, 1), at::stack({r, s}, 1));
    same(at::constant_pad_nd(x, {1, 2}, 4), at::constant_pad_nd(r, {1, 2}, 4));
    same(x.repeat({2, 1}), r.repeat({2, 1}));
    same(x.repeat_interleave(2, 0), r.repeat_interleave(2, 0));
    same(x.clone(), r);
    same(x.contiguous(), r);
    same(x.unfold(1, 1, 1), r.unfold(1, 1, 1));
    same(x.diagonal(), r.diagonal());
    same(at::diag_embed(x), at::diag_embed(r));
    same(x.rot90(), r.rot90());
    same(x.reshape({-1}), r.reshape({-1}));
    same(x.t().reshape({-1}), r.t().reshape({-1}));
    same(at::embedding(x, there(few)), at::embedding(r, few));
    same(at::eye(rows, columns, x.options()), at::eye(rows, columns, at::kLong));
    same(at::arange(1, 9, 3, x.options()), at::arange(1, 9, 3, at::kLong));
    same(at::zeros_like(x), at::zeros_like(r));
    same(at::full_like(x, 3), at::full_like(r, 3));
    at::Tensor grown = x.clone();
    grown.resize_({1, 1});
    same(grown, r.view({-1}).narrow(0, 0, 1).view({1, 1}));
    at::Tensor target = at::zeros({rows, 2 * columns}, x.options());
    target.narrow(1, columns, columns).copy_(x);  // a view that is written through
    same(target, at::cat({at::zeros_like(r), r}, 1));
  });
}

// Protects what adds where two elements meet, in the field and not as integers of a slot.
TEST(FieldMovement, AddsWhereElementsMeet) {
  in_each_kind("scatter_add, index_add, index_put, unfold", [](const Kind& kind) {
    const std::int64_t rows = test::from_to(1, 4), columns = test::from_to(1, 4), sources = test::from_to(1, 6);
    const at::Tensor x = drawn({rows, columns}, kind), y = drawn({sources, columns}, kind);
    const at::Tensor index = test::drawn_whole({sources}, 0, rows);
    const std::vector<Integer> from = integers(residues(y)), at = integers(index);
    const auto added = [&](std::int64_t factor) {
      std::vector<Integer> sum = integers(residues(x));
      for (std::int64_t i = 0; i < sources; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          Integer& each = sum[static_cast<std::int64_t>(at[i]) * columns + j];
          each = test::modulo(each + factor * from[i * columns + j], kind.bits);
        }
      return test::tensor_of(sum, {rows, columns});
    };
    const at::Tensor here = index.to(x.device()), wide = here.unsqueeze(1).expand({sources, columns});
    test::expect_same(x.scatter_add(0, wide, y), added(1));
    test::expect_same(x.clone().scatter_add_(0, wide, y), added(1));
    test::expect_same(at::scatter_reduce(x, 0, wide, y, "sum"), added(1));
    test::expect_same(x.index_add(0, here, y, -2), added(-2));
    test::expect_same(x.index_put({here}, y, /*accumulate=*/true), added(1));
    at::Tensor turned = x.t().contiguous().t();  // written through strides
    test::expect_same(turned.index_put_({here}, y, true), added(1));
    const at::Tensor zeros = at::zeros_like(x);
    test::expect_same(at::embedding_dense_backward(y, here, rows, -1, false), residues(zeros.index_add(0, here, y)));

    // Windows of two that overlap, summed again: the inner elements twice.
    const at::Tensor line = drawn({4}, kind), windows = line.unfold(0, 2, 1);
    std::vector<Integer> sums = integers(residues(line));
    sums[1] = test::modulo(2 * sums[1], kind.bits), sums[2] = test::modulo(2 * sums[2], kind.bits);
    test::expect_same(at::unfold_backward(windows, {4}, 0, 2, 1), test::tensor_of(sums, {4}));
  });
}

// Protects casts: between the floats of the device the algebra is the identity, and each to a narrower type is
// recorded.
TEST(FieldMovement, CastsAreTheIdentityAndAreRecorded) {
  const auto casts = [] {
    std::vector<std::string> details;
    for (const Remark& each : device().finish().remarks)
      if (each.kind == "cast") details.push_back(each.detail);
    return details;
  };
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    const at::Tensor x = device().tensor_of(at::tensor({5, 6, 7}, at::kLong), kind.type);
    const std::string own = kind.type == at::kFloat ? "float32" : "float64";
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      device().start(false);
      const at::Tensor y = x.to(type);
      EXPECT_TRUE(at::equal(residues(y), residues(x)));
      EXPECT_EQ(y.scalar_type(), kind.bits == 61 || type == at::kDouble ? at::kDouble : at::kFloat);
      const std::string to = type == at::kDouble  ? "float64"
                             : type == at::kFloat ? "float32"
                             : type == at::kHalf  ? "float16"
                                                  : "bfloat16";
      const bool narrower = to != own && type != at::kDouble;
      EXPECT_EQ(casts(), narrower ? std::vector<std::string>{own + " to " + to} : std::vector<std::string>{})
          << own << ' ' << to;
    }
  }
  device().use(31);
  const at::Tensor wide = device().tensor_of(at::tensor({5}, at::kLong), at::kDouble), narrow = wide.to(at::kFloat);
  device().start(false);
  at::Tensor(narrow.clone()).add_(wide);
  at::Tensor(narrow.clone()).copy_(wide);
  EXPECT_EQ(casts(), (std::vector<std::string>{"float64 to float32", "float64 to float32"}));
}

// Memory that nobody wrote does not pass for a value: not for 0, and not for the same one in each call.
TEST(FieldMovement, UninitialisedMemoryHasNoValue) {
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    const at::Tensor x = at::empty({100}, at::TensorOptions().dtype(kind.type).device("field"));
    const at::Tensor y = at::empty({100}, x.options());
    EXPECT_FALSE(at::equal(residues(x), residues(y)));
    EXPECT_TRUE(residues(x).ne(0).all().item<bool>());
    EXPECT_TRUE(residues(x).lt((std::int64_t{1} << kind.bits) - 1).all().item<bool>());
    at::Tensor grown = device().tensor_of(at::zeros({2}, at::kLong), kind.type);
    grown.resize_({100});
    EXPECT_TRUE(residues(grown).narrow(0, 2, 98).ne(0).all().item<bool>());
  }
}

}  // namespace
}  // namespace fractus
