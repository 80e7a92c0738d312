// What a block's definition says of calls that belong together: chunks in a row, tokens behind others, rows of a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/oracle/block_core_draws.h"

namespace fractus::oracle::block_core {
namespace {

enum Output : std::size_t { out_at, lb_at, S_at, z_at, theta_at };

// The values alone of some rows and tokens of a question.
Question part_of(const Question& whole, std::int64_t row, std::int64_t rows, std::int64_t token, std::int64_t tokens) {
  Question part = whole;
  part.cotangents.clear();
  const Array& h = *whole.inputs[0];
  const auto cut = [](const Array& from, Shape shape, std::int64_t first) {
    Array array{from.name, from.dtype, std::move(shape), {}};
    array.values.assign(from.values.begin() + first, from.values.begin() + first + element_count(array.shape));
    return array;
  };
  const std::int64_t T = h.shape[1], d = h.shape[2];
  part.inputs[0] = Array{"h", whole.dtype, {rows, tokens, d}, {}};
  for (std::int64_t b = row; b < row + rows; ++b) {
    const Array one = cut(h, {1, tokens, d}, (b * T + token) * d);
    part.inputs[0]->values.insert(part.inputs[0]->values.end(), one.values.begin(), one.values.end());
  }
  if (whole.inputs[1]) part.inputs[1] = cut(*whole.inputs[1], {rows, d, d}, row * d * d);
  if (whole.inputs[2]) part.inputs[2] = cut(*whole.inputs[2], {rows, d}, row * d);
  return part;
}

// Those elements of which both have a bound, and those of them whose values are further apart than both radii allow.
struct Apart {
  std::size_t compared = 0, apart = 0;
};
Apart apart(Output output, const Expected& a, std::size_t from_a, const Expected& b, std::size_t from_b,
            std::size_t count) {
  const ExpectedTensor &x = a.outputs[output], &y = b.outputs[output];
  Apart result;
  for (std::size_t i = 0; i < count; ++i) {
    const double tolerance = x.tolerance.at(from_a + i) + y.tolerance.at(from_b + i);
    if (!std::isfinite(tolerance)) continue;
    const double u = x.value[from_a + i], v = y.value[from_b + i];
    ++result.compared;
    result.apart += std::fabs(u - v) > tolerance * a.radius_per_tolerance + std::fabs(u) * 0x1p-51;
  }
  return result;
}

struct Sizes {
  std::size_t B, T, d, L, P;
};
Sizes sizes_of(const Question& q) {
  const auto of = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  const Shape& h = q.inputs[0]->shape;
  return {of(h[0]), of(h[1]), of(h[2]), q.inputs[7]->values.size(), q.inputs[13]->values.size()};
}

// Protects: a chunk that takes on what the one before has returned. S and z are the whole sequence's, since no key or
// value sees the carry, and a mean over levels passes through a sum. What a query makes of it is the whole sequence's
// where there is one level; where there are several each starts from the mean of them, so theta is another, which shows
// that it can be. The first chunk's theta is that of the whole sequence whatever L is.
TEST(BlockCore, CarryContinuesASequence) {
  std::size_t single = 0, several = 0, several_apart = 0;
  for (std::uint64_t s = 1; s <= 80; ++s) {
    const Question question = made(s, DType::float32);
    const auto [B, T, d, L, P] = sizes_of(question);
    if (T < 3 || d < 2) continue;  // LayerNorm leaves nothing of one element
    const auto rows = static_cast<std::int64_t>(B), tokens = static_cast<std::int64_t>(T);
    const Expected whole = expected(part_of(question, 0, rows, 0, tokens)),
                   first = expected(part_of(question, 0, rows, 0, 2));
    Question rest = part_of(question, 0, rows, 2, tokens - 2);
    for (std::size_t i = 1; i < 3; ++i) {
      const ExpectedTensor& carry = first.outputs[i + 1];
      rest.inputs[i] = Array{i == 1 ? "S0" : "z0", question.dtype, carry.shape, carry.value};
    }
    const Expected second = expected(rest);
    const Apart S = apart(S_at, whole, 0, second, 0, B * d * d), z = apart(z_at, whole, 0, second, 0, B * d);
    EXPECT_EQ(S.compared, B * d * d);
    EXPECT_EQ(S.apart + z.apart, 0) << "seed " << s;
    EXPECT_GT(apart(S_at, whole, 0, first, 0, B * d * d).apart, 0) << "seed " << s;  // one chunk's are not
    for (std::size_t b = 0; b < B; ++b) {
      EXPECT_EQ(apart(theta_at, whole, b * T * P, first, b * 2 * P, 2 * P).apart, 0) << "seed " << s;
      const std::size_t count = (T - 2) * P;
      const Apart behind = apart(theta_at, whole, (b * T + 2) * P, second, b * count, count);
      if (L == 1) {
        EXPECT_EQ(behind.apart, 0) << "seed " << s;
        single += behind.compared;
      } else if (behind.compared > 0) {
        ++several;
        several_apart += behind.apart > 0;
      }
    }
  }
  EXPECT_GT(single, 50);
  EXPECT_GT(several, 20);
  EXPECT_EQ(several_apart, several);
}

// Protects: causality. No theta up to a token knows of those behind it; that of the next one does.
TEST(BlockCore, ThetaKnowsOfNoLaterToken) {
  std::size_t compared = 0;
  for (std::uint64_t s = 1; s <= 40; ++s) {
    const Question drawn = made(s, DType::float32);
    const auto [B, T, d, L, P] = sizes_of(drawn);
    if (T < 3 || d < 2) continue;
    const Question question = part_of(drawn, 0, 1, 0, static_cast<std::int64_t>(T));
    Question changed = question;
    for (std::size_t i = 2 * d; i < T * d; ++i)
      changed.inputs[0]->values[i] = rounded(std::sin(1.0 + static_cast<double>(i)), DType::float32);
    const Expected one = expected(question), other = expected(changed);
    const Apart before = apart(theta_at, one, 0, other, 0, 2 * P), next = apart(theta_at, one, 2 * P, other, 2 * P, P);
    EXPECT_EQ(before.apart, 0) << "seed " << s;
    compared += before.compared;
    EXPECT_EQ(next.apart > 0, next.compared > 0) << "seed " << s;
  }
  EXPECT_GT(compared, 100);
}

// Protects: the rows of a batch know nothing of each other, but for lb, which is of them all; and a row is not another.
TEST(BlockCore, RowsAreIndependentButForBalance) {
  std::size_t pairs = 0, balance_apart = 0;
  for (std::uint64_t s = 1; s <= 40; ++s) {
    const Question question = made(s, DType::float32);
    const auto [B, T, d, L, P] = sizes_of(question);
    if (B < 2) continue;
    ++pairs;
    const auto tokens = static_cast<std::int64_t>(T);
    const Expected both = expected(part_of(question, 0, 2, 0, tokens));
    for (std::size_t b = 0; b < 2; ++b) {
      const Expected alone = expected(part_of(question, static_cast<std::int64_t>(b), 1, 0, tokens));
      for (const auto& [output, count] :
           {std::pair(out_at, T * d), std::pair(S_at, d * d), std::pair(z_at, d), std::pair(theta_at, T * P)}) {
        EXPECT_EQ(apart(output, both, b * count, alone, 0, count).apart, 0) << "seed " << s << " output " << output;
        const Apart other = apart(output, both, (1 - b) * count, alone, 0, count);
        EXPECT_EQ(other.apart > 0, other.compared > 0) << "seed " << s << " output " << output;
      }
      balance_apart += apart(lb_at, both, 0, alone, 0, 1).apart;
    }
  }
  EXPECT_GT(pairs, 8);
  EXPECT_GT(balance_apart, pairs);
}

// The expert nearest to the mean angle of a token's theta.
std::size_t nearest_expert(const Question& question, const double* theta, std::size_t P) {
  double sine = 0, cosine = 0;
  for (std::size_t p = 0; p < P; ++p) sine += std::sin(theta[p]), cosine += std::cos(theta[p]);
  const std::vector<double>& mu = question.inputs[18]->values;
  const auto distance = [&](double angle) { return -std::cos(angle - std::atan2(sine, cosine)); };
  return static_cast<std::size_t>(
      std::min_element(mu.begin(), mu.end(), [&](double a, double b) { return distance(a) < distance(b); }) -
      mu.begin());
}

// Protects: all tokens of a chunk go where its last one is routed. With one expert, whose weight is 1, out of the first
// tokens is the same in a shorter chunk if that ends with the same expert, and another one if it does not.
TEST(BlockCore, LastTokenRoutesTheWholeChunk) {
  std::size_t same = 0, different = 0;
  for (std::uint64_t s = 1; s <= 60; ++s) {
    Question question = made(s, DType::float32);
    question.scalars["top_k"] = 1;
    const auto [B, T, d, L, P] = sizes_of(question);
    if (T < 3) continue;
    const Expected whole = expected(part_of(question, 0, 1, 0, static_cast<std::int64_t>(T))),
                   first = expected(part_of(question, 0, 1, 0, 2));
    const Apart out = apart(out_at, whole, 0, first, 0, 2 * d);
    if (out.compared == 0) continue;
    const bool is_same = nearest_expert(question, whole.outputs[theta_at].value.data() + (T - 1) * P, P) ==
                         nearest_expert(question, first.outputs[theta_at].value.data() + P, P);
    (is_same ? same : different) += 1;
    EXPECT_EQ(out.apart == 0, is_same) << "seed " << s;
  }
  EXPECT_GT(same, 3);
  EXPECT_GT(different, 3);
}

}  // namespace
}  // namespace fractus::oracle::block_core
