// Definitions over a finite field: what `identity` holds candidates against, and the degrees that its bound rests on.
#include "oracle/rational.h"

#include "contracts/block_attention.h"
#include "contracts/experts.h"
#include "contracts/linear_attention.h"
#include "contracts/matmul.h"
#include "oracle/block_attention_field.h"
#include "oracle/experts_field.h"
#include "oracle/linear_attention_field.h"
#include "oracle/matmul_field.h"
#include "tests/oracle/algebra.h"
#include "tests/oracle/property.h"
#include "tests/oracle/taped.h"

namespace fractus::oracle {
namespace {

using Engine = std::mt19937_64;

Residues drawn(const TensorSpec& spec, const Dims& dims, int bits, Engine& engine) {
  Residues residues{spec.name, shape_of(spec, dims), {}};
  const std::uint64_t p = (std::uint64_t{1} << bits) - 1;
  for (std::int64_t i = 0; i < element_count(residues.shape); ++i) residues.values.push_back(engine() % p);
  return residues;
}

FieldCall call_of(const Contract& contract, const Dims& dims, int bits, std::uint64_t seed) {
  Engine engine(seed);
  FieldCall call{.kernel = contract.kernel, .bits = bits};
  for (const TensorSpec& spec : contract.inputs) {
    call.inputs.push_back(drawn(spec, dims, bits, engine));
    if (spec.dtype)
      for (std::size_t i = 0; i < call.inputs.back()->values.size(); ++i) {
        const auto K = static_cast<std::size_t>(dims.at("K"));
        call.inputs.back()->values[i] = (i % K + i / K) % static_cast<std::size_t>(dims.at("E"));
      }
    call.gradients.push_back(spec.differentiable);
  }
  for (const TensorSpec& spec : contract.outputs) call.cotangents.push_back(drawn(spec, dims, bits, engine));
  return call;
}

std::uint64_t times(std::uint64_t a, std::uint64_t b, int bits) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b % ((std::uint64_t{1} << bits) - 1));
}

// sum over all elements of cotangent times value
std::uint64_t paired(const std::vector<std::optional<Residues>>& a, const std::vector<Residues>& b, int bits) {
  std::uint64_t sum = 0;
  for (std::size_t j = 0; j < b.size(); ++j)
    for (std::size_t i = 0; i < b[j].values.size(); ++i)
      sum = (sum + times(a[j]->values[i], b[j].values[i], bits)) % ((std::uint64_t{1} << bits) - 1);
  return sum;
}

// Protects: matrix products and their gradients, against sums written out by index.
TEST(RationalKernels, MatmulByIndex) {
  for (const int bits : {31, 61}) {
    const std::uint64_t p = (std::uint64_t{1} << bits) - 1;
    const FieldCall call = call_of(fractus::matmul::contract(), {{"G", 2}, {"M", 3}, {"K", 4}, {"N", 5}}, bits, 7);
    const FieldExpected expected = oracle::matmul::over_field(call);
    const auto &a = call.inputs[0]->values, &b = call.inputs[1]->values, &g = call.cotangents[0]->values;
    std::vector<std::uint64_t> c(30), da(24), db(40);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t m = 0; m < 3; ++m)
        for (std::size_t k = 0; k < 4; ++k)
          for (std::size_t n = 0; n < 5; ++n) {
            const std::size_t at_a = (i * 3 + m) * 4 + k, at_b = (i * 4 + k) * 5 + n, at_c = (i * 3 + m) * 5 + n;
            c[at_c] = (c[at_c] + times(a[at_a], b[at_b], bits)) % p;
            da[at_a] = (da[at_a] + times(g[at_c], b[at_b], bits)) % p;
            db[at_b] = (db[at_b] + times(g[at_c], a[at_a], bits)) % p;
          }
    EXPECT_EQ(expected.outputs[0].values, c);
    EXPECT_EQ(expected.gradients[0]->values, da);
    EXPECT_EQ(expected.gradients[1]->values, db);
  }
}

// Protects: experts, against the formula by index, for weights that tell the slots apart.
TEST(RationalKernels, ExpertsByIndex) {
  const int bits = 61;
  const std::uint64_t p = Field::p;
  const std::size_t N = 5, K = 2, E = 3, d = 3, f = 2;
  const FieldCall call =
      call_of(fractus::experts::contract(), {{"N", 5}, {"K", 2}, {"E", 3}, {"d", 3}, {"f", 2}}, bits, 3);
  const auto in = [&](std::size_t i, std::size_t at) { return call.inputs[i]->values[at]; };
  std::vector<std::uint64_t> out(N * d);
  for (std::size_t n = 0; n < N; ++n)
    for (std::size_t k = 0; k < K; ++k) {
      const std::size_t e = in(2, n * K + k);
      ASSERT_LT(e, E);
      for (std::size_t c = 0; c < d; ++c) {
        std::uint64_t y = in(6, e * d + c);
        for (std::size_t m = 0; m < f; ++m) {
          std::uint64_t inner = in(4, e * f + m);
          for (std::size_t r = 0; r < d; ++r)
            inner = (inner + times(in(0, n * d + r), in(3, (e * d + r) * f + m), bits)) % p;
          y = (y + times(inner, in(5, (e * f + m) * d + c), bits)) % p;
        }
        out[n * d + c] = (out[n * d + c] + times(in(1, n * K + k), y, bits)) % p;
      }
    }
  EXPECT_EQ(oracle::experts::over_field(call).outputs[0].values, out);
}

// Protects: block_attention is linear attention by head and level, with its own adjoint's gradients: one level and one
// head at a mix of 1 are linear attention itself, whose adjoint is written by hand and here comes from the tape.
TEST(RationalKernels, OneLevelAndHeadIsLinearAttention) {
  for (const int bits : {31, 61}) {
    FieldCall block =
        call_of(fractus::block_attention::contract(), {{"B", 2}, {"L", 1}, {"T", 5}, {"H", 1}, {"D", 3}}, bits, 11);
    block.inputs[3]->values = {1};
    FieldCall plain = call_of(fractus::linear_attention::contract(), {{"G", 2}, {"T", 5}, {"D", 3}}, bits, 1);
    const std::size_t of[] = {0, 1, 2, 4, 5};
    for (std::size_t i = 0; i < 5; ++i) plain.inputs[i]->values = block.inputs[of[i]]->values;
    for (std::size_t j = 0; j < 3; ++j) plain.cotangents[j]->values = block.cotangents[j]->values;
    const FieldExpected by_block = oracle::block_attention::over_field(block),
                        by_plain = oracle::linear_attention::over_field(plain);
    for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(by_block.outputs[j].values, by_plain.outputs[j].values) << j;
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_EQ(by_block.gradients[of[i]]->values, by_plain.gradients[i]->values) << i;
  }
}

// Protects: levels and heads. y is linear in the mix, so its gradient pairs with the mix to what y pairs to (Euler),
// and the carry is the mean over levels: two equal ones give that of one.
TEST(RationalKernels, LevelsOfABlock) {
  const int bits = 61;
  FieldCall call =
      call_of(fractus::block_attention::contract(), {{"B", 1}, {"L", 2}, {"T", 4}, {"H", 2}, {"D", 2}}, bits, 5);
  const FieldExpected whole = oracle::block_attention::over_field(call);
  FieldCall of_y = call;
  for (const std::size_t j : {1, 2}) std::fill(of_y.cotangents[j]->values.begin(), of_y.cotangents[j]->values.end(), 0);
  const FieldExpected along = oracle::block_attention::over_field(of_y);
  EXPECT_EQ(paired({call.inputs[3]}, {*along.gradients[3]}, bits),
            paired({call.cotangents[0]}, {whole.outputs[0]}, bits));

  FieldCall equal = call;
  for (const std::size_t i : {0, 1}) {
    auto& values = equal.inputs[i]->values;
    std::copy_n(values.begin(), values.size() / 2, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  }
  FieldCall one = equal;
  for (const std::size_t i : {0, 1}) {
    one.inputs[i]->values.resize(one.inputs[i]->values.size() / 2);
    one.inputs[i]->shape[1] = 1;
  }
  one.inputs[3] = Residues{"mix", {1}, {equal.inputs[3]->values[0]}};
  const FieldExpected two = oracle::block_attention::over_field(equal),
                      single = oracle::block_attention::over_field(one);
  EXPECT_EQ(two.outputs[1].values, single.outputs[1].values);
  EXPECT_EQ(two.outputs[2].values, single.outputs[2].values);
  EXPECT_NE(two.outputs[0].values, single.outputs[0].values);
}

// Protects: the call's glue of linear attention (groups, absent inputs and cotangents), against the template by group.
TEST(RationalKernels, LinearAttentionByGroup) {
  EXPECT_TRUE(holds(100, [](const linear_attention::Draw& draw) {
    const auto [inputs, cotangents] = linear_attention::field_point(draw);
    const auto by_template = linear_attention::evaluate<Field>(inputs, &cotangents, {});
    FieldCall call = call_of(fractus::linear_attention::contract(), {{"G", 1}, {"T", draw.T}, {"D", draw.D}}, 61, 1);
    const auto copy = [](const Matrix<Field>& from, std::optional<Residues>& to, bool present) {
      to->values.clear();
      for (const Row<Field>& row : from)
        for (std::size_t i = 0; i < row.size(); ++i) to->values.push_back(row.get(i).residue());
      if (!present) to.reset();
    };
    copy(inputs.q, call.inputs[0], true);
    copy(inputs.k, call.inputs[1], true);
    copy(inputs.v, call.inputs[2], true);
    copy(inputs.S0, call.inputs[3], draw.S0);
    copy({inputs.z0}, call.inputs[4], draw.z0);
    copy(cotangents.y.value_or(Matrix<Field>{}), call.cotangents[0], cotangents.y.has_value());
    copy(cotangents.S, call.cotangents[1], draw.cotangents & 2);
    copy({cotangents.z}, call.cotangents[2], draw.cotangents & 4);
    RC_PRE(call.cotangents[0] || call.cotangents[1] || call.cotangents[2]);
    const FieldExpected expected = oracle::linear_attention::over_field(call);
    const auto same = [](const Matrix<Field>& wanted, const Residues& got) {
      std::size_t at = 0;
      for (const Row<Field>& row : wanted)
        for (std::size_t i = 0; i < row.size(); ++i)
          if (row.get(i).residue() != got.values[at++]) return false;
      return at == got.values.size();
    };
    RC_ASSERT(same(by_template.outputs.y, expected.outputs[0]));
    RC_ASSERT(same(by_template.outputs.S, expected.outputs[1]));
    RC_ASSERT(same(by_template.gradients->q, *expected.gradients[0]));
    RC_ASSERT(same(by_template.gradients->S0, *expected.gradients[3]));
    RC_ASSERT(same({by_template.gradients->z0}, *expected.gradients[4]));
  }));
}

// Protects: the degrees, by hand where they are easily found. den_t is of degree 2 and y_t of (1 + 2) / 2; through one
// token the gradient of k has den^2 below it.
TEST(Degrees, OfTheDefinitions) {
  const auto of = [](std::int64_t T, std::int64_t G) {
    return oracle::linear_attention::degrees(
        call_of(fractus::linear_attention::contract(), {{"G", G}, {"T", T}, {"D", 3}}, 61, 2));
  };
  EXPECT_EQ(of(1, 1).denominator, 4);
  EXPECT_EQ(of(1, 1).numerator, of(1, 3).numerator);
  // dk_1 has the squares of all dens below it, each of degree 2.
  for (const std::int64_t T : {2, 3, 8}) EXPECT_EQ(of(T, 1).denominator, 4 * T);
  const Degrees product =
      oracle::matmul::degrees(call_of(fractus::matmul::contract(), {{"G", 1}, {"M", 2}, {"K", 9}, {"N", 2}}, 61, 2));
  EXPECT_EQ(product.numerator, 2);
  EXPECT_EQ(product.denominator, 0);
  // weight, h, W1, W2 and, of a gradient, the cotangent less what it is the gradient of: four.
  EXPECT_EQ(oracle::experts::degrees(
                call_of(fractus::experts::contract(), {{"N", 2}, {"K", 1}, {"E", 2}, {"d", 2}, {"f", 2}}, 61, 2))
                .numerator,
            4);
}

// Protects: an upper bound, whatever the program of sums, products and quotients. Along a line a rational function f of
// degrees at most n is N(t) - f(t) D(t) = 0 for some N, D of that degree: 2 n + 2 unknowns, and a solution other than 0
// at as many points only where f is of these degrees (Cauchy interpolation).
TEST(Degrees, BoundRandomPrograms) {
  EXPECT_TRUE(holds(300, [] {
    struct Operation {
      int kind;
      std::size_t a, b;
    };
    std::vector<Operation> program;
    const std::size_t leaves = 3;
    for (int i = 0; i < 6; ++i)
      program.push_back({*rc::gen::inRange(0, 4), *rc::gen::inRange<std::size_t>(0, leaves + program.size()),
                         *rc::gen::inRange<std::size_t>(0, leaves + program.size())});
    const auto run = [&](auto numbers) {
      for (const auto& [kind, a, b] : program) {
        const auto x = numbers[a], y = numbers[b];
        numbers.push_back(kind == 0 ? x + y : kind == 1 ? x * y : kind == 2 ? x / y : x - y * y);
      }
      return numbers.back();
    };
    const Degree::Ledger ledger;
    std::vector<Degree> variables;  // each by itself: copies of one would be one divisor
    for (std::size_t i = 0; i < leaves; ++i) variables.push_back(Degree::variable());
    const Degree said = run(variables);
    const auto degree = std::max(said.numerator(), said.denominator());
    RC_PRE(degree < 60);
    Engine engine(*rc::gen::arbitrary<std::uint64_t>());
    const auto random = [&] { return Field(static_cast<std::int64_t>(engine() >> 4)); };
    std::vector<Field> at(leaves), along(leaves);
    for (std::size_t i = 0; i < leaves; ++i) at[i] = random(), along[i] = random();
    const auto unknowns = static_cast<std::size_t>(2 * degree + 2);
    std::vector<std::vector<Field>> rows;
    for (std::size_t k = 0; rows.size() < unknowns; ++k) {
      const Field t(static_cast<std::int64_t>(k));
      std::vector<Field> point;
      for (std::size_t i = 0; i < leaves; ++i) point.push_back(at[i] + t * along[i]);
      Field value(0);
      try {
        value = run(point);
      } catch (const std::domain_error&) {
        RC_PRE(k < 4 * unknowns);
        continue;
      }
      std::vector<Field> row;
      Field power(1);
      for (std::int64_t i = 0; i <= degree; ++i, power = power * t) row.push_back(power);
      power = Field(1);
      for (std::int64_t i = 0; i <= degree; ++i, power = power * t) row.push_back(-(value * power));
      rows.push_back(row);
    }
    // By elimination.
    std::size_t rank = 0;
    for (std::size_t column = 0; column < unknowns && rank < rows.size(); ++column) {
      std::size_t pivot = rank;
      while (pivot < rows.size() && rows[pivot][column] == Field(0)) ++pivot;
      if (pivot == rows.size()) continue;
      std::swap(rows[rank], rows[pivot]);
      const Field by = inverse(rows[rank][column]);
      for (std::size_t r = rank + 1; r < rows.size(); ++r) {
        const Field factor = rows[r][column] * by;
        if (factor == Field(0)) continue;
        for (std::size_t c = column; c < unknowns; ++c) rows[r][c] = rows[r][c] - factor * rows[rank][c];
      }
      ++rank;
    }
    RC_ASSERT(rank < unknowns);
  }));
}

}  // namespace
}  // namespace fractus::oracle
