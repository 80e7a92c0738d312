// Cells of draws: their null is right, and through them wrong samplers show after as many draws as was said.
#include "properties/cells.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "properties/random.h"
#include "properties/sequential.h"

namespace fractus {
namespace {

using Law = std::vector<double>;

std::int64_t place(const Law& law, Order order, std::uint64_t salt, std::size_t token, double uniform,
                   std::int64_t cells) {
  return fractus::place(accumulated(law, order, salt)[token], law[token], uniform, cells);
}

constexpr std::int64_t chunk = 16, rows = 48;
const Level level{1e-6, 500};

Law softmax(const std::vector<double>& logits, double temperature) {
  Law law;
  for (double x : logits) law.push_back(std::exp(x / temperature));
  const double sum = std::accumulate(law.begin(), law.end(), 0.0);
  for (double& p : law) p /= sum;
  return law;
}

std::vector<double> logits(std::uint64_t seed, std::size_t tokens) {
  Random random(seed);
  std::vector<double> x(tokens);
  for (double& value : x) value = 1.5 * random.normal();
  return x;
}

std::size_t at(const Law& law, double uniform) {
  std::size_t token = 0;
  for (double left = uniform - law[0]; left >= 0 && token + 1 < law.size(); left -= law[token]) ++token;
  return token;
}

double total_variation(const Partition& partition, const Law& p, const Law& q) {
  std::vector<double> mass(std::size_t(partition.cells));
  for (std::size_t x = 0; x < p.size(); ++x) mass[std::size_t(partition.cell_of[x])] += q[x] - p[x];
  double sum = 0;
  for (double m : mass) sum += std::fabs(m) / 2;
  return sum;
}

// Draws of `drawn` seen in the cells, judged against `law`.
EProcess process_of(const Partition& partition, const Law& law, const Law& drawn, std::int64_t draws,
                    std::uint64_t seed) {
  Random random(seed);
  Law before(drawn.size());
  std::partial_sum(drawn.begin(), drawn.end(), before.begin());
  const std::vector<double> upper = log_upper(partition, law, 0);
  EProcess process(partition.cells);
  for (std::int64_t t = 0; t < draws; ++t) {
    const auto found = std::upper_bound(before.begin(), before.end(), random.uniform() * before.back());
    const std::int32_t cell = partition.cell_of[std::size_t(std::min(found, before.end() - 1) - before.begin())];
    process.observe(cell, upper[std::size_t(cell)]);
  }
  return process;
}

std::int64_t draws_to_show(double tau, std::int64_t cells) {
  std::int64_t draws = 1;
  while (smallest_shown(draws, cells, 1, 0, level.log_threshold()) > tau) draws += draws / 8 + 1;
  return draws;
}

// Protects: the null of every partition. Cells are named without gaps, and their masses add up to 1.
TEST(Partition, CoversTheLaw) {
  EXPECT_TRUE(rc::check("partitions cover", [] {
    const auto tokens = *rc::gen::inRange<std::size_t>(1, 300);
    const Law law = softmax(logits(*rc::gen::arbitrary<std::uint64_t>(), tokens), 1);
    const auto cells = *rc::gen::inRange<std::int64_t>(3, 65);
    for (const Partition& p :
         {by_token(tokens), by_rank(law, cells), by_index(tokens, cells), by_hash(tokens, cells, 7)}) {
      RC_ASSERT(p.cell_of.size() == tokens);
      RC_ASSERT(p.cells <= std::max<std::int64_t>(cells, std::int64_t(tokens)));
      std::vector<int> members(std::size_t(p.cells));
      for (std::int32_t cell : p.cell_of) ++members.at(std::size_t(cell));
      RC_ASSERT(std::find(members.begin(), members.end(), 0) == members.end());
      double mass = 0;
      for (double m : log_upper(p, law, 0)) mass += std::exp(m);
      RC_ASSERT(mass >= 1 - 1e-12 && mass <= 1 + 1e-9);
    }
    const Partition index = by_index(tokens, cells);
    if (tokens > 2) RC_ASSERT(std::count(index.cell_of.begin(), index.cell_of.end(), 0) == 1);
    if (tokens > 2) RC_ASSERT(std::count(index.cell_of.begin(), index.cell_of.end(), index.cell_of.back()) == 1);
    RC_ASSERT(std::is_sorted(index.cell_of.begin(), index.cell_of.end()));
    const Partition rank = by_rank(law, cells);
    for (std::size_t x = 1; x < tokens; ++x)
      if (law[x] > law[0]) RC_ASSERT(rank.cell_of[x] <= rank.cell_of[0]);
  }));
}

// Protects: equal mass by rank, and that tokens below the least probability lend a cell none.
TEST(Partition, HasTheMassesItIsSaidToHave) {
  const Law law = softmax(logits(3, 5000), 1);
  const double most = *std::max_element(law.begin(), law.end());
  for (double m : log_upper(by_rank(law, 32), law, 0)) EXPECT_NEAR(std::exp(m), 1.0 / 32, most);
  const Law cut{0.5, 0.5, 0x1p-101, 0};
  EXPECT_EQ(log_upper(by_token(4), cut, 0)[2], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_upper(by_token(4), cut, 0)[0], log_upper(by_token(4), cut, 0)[1]);
  EXPECT_NEAR(log_upper(by_token(4), cut, 0.01)[0], std::log(0.5) + 0.01, 1e-12);
}

// Protects: rows of different laws pooled. Under any law each place has probability 1/cells, exactly: the law is of
// multiples of 1/64, and `uniform` walks through the middles of them.
TEST(Place, IsUniformUnderEveryLaw) {
  EXPECT_TRUE(rc::check("places are uniform", [] {
    std::vector<int> parts(*rc::gen::inRange<std::size_t>(1, 12));
    for (int k = 0; k < 64; ++k) ++parts[*rc::gen::inRange<std::size_t>(0, parts.size())];
    Law law;
    for (int k : parts) law.push_back(k / 64.0);
    for (Order order : {Order::rank, Order::index, Order::hash}) {
      std::vector<int> sixty_fourths(16);
      for (std::size_t token = 0; token < law.size(); ++token)
        for (int j = 0; j < parts[token]; ++j)
          ++sixty_fourths.at(std::size_t(place(law, order, 5, token, (j + 0.5) / parts[token], 16)));
      RC_ASSERT(sixty_fourths == std::vector<int>(16, 4));
    }
  }));
}

// Protects: the power against known-wrong laws. Each shows in the partition that is meant for it after the draws that
// the total variation of its cells asks for, and not one draw of that many from the right law is held against it.
TEST(Partition, ShowsWrongLawsAfterTheDrawsThatWereSaid) {
  constexpr std::size_t tokens = 200;
  const std::vector<double> x = logits(4, tokens);
  const Law law = softmax(x, 0.9);
  const auto normalized = [](Law q) {
    const double sum = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& p : q) p /= sum;
    return q;
  };
  Law top = law, lost = law, heavy_last = law, biased = law;
  Law sorted = law;
  std::nth_element(sorted.begin(), sorted.begin() + 49, sorted.end(), std::greater<>());
  for (double& p : top)
    if (p < sorted[49]) p = 0;
  heavy_last.back() = 0.03;
  heavy_last = normalized(heavy_last);
  lost = heavy_last;
  lost.back() = 0;
  // 2 % of the mass moves from one half of the indices to the other.
  const double low = std::accumulate(law.begin(), law.begin() + tokens / 2, 0.0);
  for (std::size_t t = 0; t < tokens; ++t) biased[t] *= t < tokens / 2 ? 1 + 0.02 / low : 1 - 0.02 / (1 - low);

  struct Wrong {
    std::string name;
    Partition partition;
    Law right, drawn;
  };
  for (const Wrong& w : {Wrong{"temperature ignored", by_rank(law, 64), law, softmax(x, 1)},
                         Wrong{"temperature ignored, by token", by_token(tokens), law, softmax(x, 1)},
                         Wrong{"top fifty", by_rank(law, 64), law, normalized(top)},
                         Wrong{"top fifty, hashed", by_hash(tokens, 64, 1), law, normalized(top)},
                         Wrong{"last token lost", by_index(tokens, 64), heavy_last, normalized(lost)},
                         Wrong{"2 % bias", by_index(tokens, 4), law, biased}}) {
    const double tau = total_variation(w.partition, w.right, w.drawn);
    const std::int64_t draws = draws_to_show(tau, w.partition.cells);
    RecordProperty(w.name, std::to_string(tau) + " " + std::to_string(draws));
    EXPECT_LT(draws, 1000000) << w.name << " tau " << tau;
    EXPECT_TRUE(level.refutes(process_of(w.partition, w.right, w.drawn, draws, 11))) << w.name << " " << draws;
    EXPECT_FALSE(level.refutes(process_of(w.partition, w.right, w.right, draws, 12))) << w.name << " " << draws;
  }
}

// How a sampler turns the numbers of one row's stream into a token.
using Sampler = std::size_t (*)(const Law&, Random&);

std::size_t inverse(const Law& law, Random& random) { return at(law, random.uniform()); }

std::size_t gumbel(const Law& law, Random& random) {
  std::vector<double> race;
  for (double p : law) race.push_back(-std::log(1 - random.uniform()) / p);
  return std::size_t(std::min_element(race.begin(), race.end()) - race.begin());
}

// The stream of a row.
using Streams = std::uint64_t (*)(std::int64_t call, std::int64_t row);

// What dependence is looked for by: each row against the row `lag` before it, over calls of `rows` rows.
struct Dependence {
  EProcess places{8, 8}, repeats{2};
};
Dependence dependence_of(const std::vector<Law>& laws, Sampler sampler, Streams streams, std::int64_t lag) {
  Dependence found;
  Random own(99);
  for (std::int64_t call = 0; call < 40; ++call) {
    std::vector<std::size_t> drawn;
    std::vector<std::int64_t> cell;
    for (std::int64_t n = 0; n < rows; ++n) {
      const Law& law = laws[std::size_t(n)];
      Random random(streams(call, n));
      drawn.push_back(sampler(law, random));
      cell.push_back(place(law, Order::index, 0, drawn.back(), own.uniform(), 8));
      if (n < lag) continue;
      const std::size_t earlier = drawn[std::size_t(n - lag)];
      found.places.observe(cell.back(), place_log_upper(law.size(), 8, 0), cell[std::size_t(n - lag)]);
      const Repeats upper = repeats_log_upper(law, earlier, 0);
      found.repeats.observe(drawn.back() == earlier, drawn.back() == earlier ? upper.yes : upper.no);
    }
  }
  return found;
}

// Protects: the null of repeats. Yes and no add up to 1 and no more, also where one token has nearly all of the mass.
TEST(Pairs, RepeatsHaveTheLawsProbability) {
  const Law law{0.25, 1 - 0.25 - 0x1p-40 - 0x1p-101, 0x1p-40, 0x1p-101};
  for (std::size_t token = 0; token < 3; ++token) {
    const Repeats upper = repeats_log_upper(law, token, 0);
    EXPECT_NEAR(std::exp(upper.yes), law[token], 1e-13 * law[token]);
    EXPECT_NEAR(std::exp(upper.no), 1 - law[token], 1e-13);
  }
  const Law peaked{0x1p-60, 1};
  const Repeats sure = repeats_log_upper(peaked, 1, 0.5);
  EXPECT_NEAR(sure.no, std::log(0x1p-60) + 0.5, 1e-12);
  EXPECT_EQ(sure.yes, 0);  // no probability exceeds 1
}

// Protects: independence across chunk borders. Where each chunk is given the same noise every row's law is right; the
// pairs of rows at one offset of neighbouring chunks show it. By tokens that repeat where the rows have one law, or
// where a race of the tokens decides; by places that move together where the cumulative law is inverted. Control:
// independent rows show nothing, not in pairs that overlap either.
TEST(Pairs, ShowTheSameNoiseInEveryChunk) {
  constexpr std::size_t tokens = 100;
  std::vector<Law> one, several;
  for (std::int64_t n = 0; n < rows; ++n) {
    one.push_back(softmax(logits(5, tokens), 0.9));
    several.push_back(softmax(logits(std::uint64_t(6 + n), tokens), 0.9));
  }
  const Streams fresh = [](std::int64_t call, std::int64_t row) { return std::uint64_t(1000 * call + row); };
  const Streams same = [](std::int64_t call, std::int64_t row) { return std::uint64_t(1000 * call + row % chunk); };
  for (Sampler sampler : {inverse, gumbel}) {
    for (const auto& laws : {one, several}) {
      const Dependence wrong = dependence_of(laws, sampler, same, chunk);
      if (laws == one || sampler == gumbel) {
        EXPECT_TRUE(level.refutes(wrong.repeats));
      }
      if (laws == one || sampler == inverse) {
        EXPECT_TRUE(level.refutes(wrong.places));
      }
      for (std::int64_t lag : {std::int64_t{1}, chunk}) {
        const Dependence right = dependence_of(laws, sampler, fresh, lag);
        EXPECT_FALSE(level.refutes(right.places));
        EXPECT_FALSE(level.refutes(right.repeats));
      }
    }
  }
}

// Protects: fresh streams per seed. A stream that drops a high bit of the seed, or that starts one row later under the
// next seed, gives tokens that repeat; two draws of the same rows under other seeds do not.
TEST(Pairs, ShowStaleSeeds) {
  constexpr std::size_t tokens = 100;
  const Law law = softmax(logits(5, tokens), 0.9);
  const auto token = [&](std::uint64_t stream) { return at(law, Random(stream).uniform()); };
  const auto repeats = [&](std::int64_t later, const std::function<std::uint64_t(std::uint64_t, std::int64_t)>& stream,
                           std::uint64_t other) {
    EProcess process(2);
    for (std::int64_t n = 0; n < rows; ++n) {
      const std::size_t first = token(stream(77, n + later)), second = token(stream(other, n));
      const Repeats upper = repeats_log_upper(law, first, 0);
      process.observe(first == second, first == second ? upper.yes : upper.no);
    }
    return level.refutes(process);
  };
  const auto fresh = [](std::uint64_t seed, std::int64_t n) { return (seed << 16) + std::uint64_t(n); };
  const auto low_bits = [](std::uint64_t seed, std::int64_t n) { return ((seed & 0xFFFF) << 16) + std::uint64_t(n); };
  const auto counted = [](std::uint64_t seed, std::int64_t n) { return seed + std::uint64_t(n); };
  for (std::uint64_t bit : {16, 31}) {
    EXPECT_TRUE(repeats(0, low_bits, 77 ^ (std::uint64_t{1} << bit)));
    EXPECT_FALSE(repeats(0, fresh, 77 ^ (std::uint64_t{1} << bit)));
  }
  EXPECT_TRUE(repeats(1, counted, 78));
  EXPECT_FALSE(repeats(0, counted, 78));
  EXPECT_FALSE(repeats(1, fresh, 78));
}

// Protects: rows that each have a law of their own, pooled: the live shape. A temperature that is ignored and a tail
// that is cut move all of them to lower ranks; right rows fill all places alike.
TEST(Place, ShowsWrongLawsOfRowsThatAllDiffer) {
  constexpr std::size_t tokens = 200;
  constexpr std::int64_t draws = 20000;
  const auto shown = [&](double temperature, std::size_t most) {
    Random random(13);
    EProcess process(16);
    for (std::int64_t t = 0; t < draws; ++t) {
      const std::vector<double> x = logits(std::uint64_t(t % 64), tokens);
      const Law law = softmax(x, 0.9);
      Law drawn = softmax(x, temperature), sorted = law;
      std::nth_element(sorted.begin(), sorted.begin() + std::ptrdiff_t(most - 1), sorted.end(), std::greater<>());
      double sum = 0;
      for (std::size_t k = 0; k < tokens; ++k) sum += drawn[k] *= law[k] >= sorted[most - 1];
      const std::size_t token = at(drawn, random.uniform() * sum);
      process.observe(place(law, Order::rank, 0, token, random.uniform(), 16), place_log_upper(tokens, 16, 0));
    }
    return level.refutes(process);
  };
  EXPECT_TRUE(shown(1, tokens));
  EXPECT_TRUE(shown(0.9, 50));
  EXPECT_FALSE(shown(0.9, tokens));
}

}  // namespace
}  // namespace fractus
