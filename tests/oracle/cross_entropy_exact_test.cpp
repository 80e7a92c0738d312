// The exactness certificate of cross entropy: where it says that no correct kernel rounds, none of the orders may
// differ in a single bit.
#include <fmt/format.h>

#include <iostream>
#include <numeric>

#include "tests/oracle/cross_entropy_draws.h"
#include "tests/oracle/cross_entropy_orders.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::cross_entropy {
namespace {

struct TwoLevel {
  int N = 1, V = 1, on = 1, bits = 4;
  std::uint64_t seed = 0;
  DType dtype = DType::float32;
};

// Logits of `on` tokens lie at one level and those of the others far below it. The first two coordinates of h are 1 and
// -1, those of W large and almost the same, so that the level appears in a cancellation; the third moves all logits of
// a row alike.
Question made(const TwoLevel& t) {
  constexpr std::size_t d = 3;
  Values values(t.seed);
  const auto V = static_cast<std::size_t>(t.V);
  Array h = zeros("h", t.dtype, {t.N, 3}), W = zeros("W", t.dtype, {t.V, 3}),
        targets = zeros("targets", DType::int64, {t.N});
  std::vector<std::size_t> order(V);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = V; i > 1; --i) std::swap(order[i - 1], order[values.index(i)]);
  const double off = t.dtype == DType::float32 ? -200 : -1000, most = std::ldexp(1.0, t.bits);
  const double common = std::trunc(values.uniform(-9, 10));
  for (std::size_t i = 0; i < V; ++i) {
    double* w = &W.values[d * order[i]];
    w[1] = std::trunc(values.uniform(-most, most));
    w[0] = w[1] + (i < static_cast<std::size_t>(t.on) ? 0 : off - std::trunc(values.uniform(0, 9)));
    w[2] = common;
  }
  for (std::size_t n = 0; n < h.values.size(); n += d)
    h.values[n] = 1, h.values[n + 1] = -1, h.values[n + 2] = std::trunc(values.uniform(-9, 10));
  fill_with(targets, [&] { return static_cast<double>(values.index(V)); });
  const double g =
      values.sign() * std::ldexp(1 + std::trunc(values.uniform(0, 4)), static_cast<int>(values.uniform(-9, 9)));
  return {.dtype = t.dtype, .inputs = {h, W, targets}, .cotangent = Array{"loss", t.dtype, {}, {g}}};
}

using Certificates = std::vector<std::optional<std::vector<double>>>;

Certificates certificates(const Exactness& exact) { return {exact.outputs[0], exact.gradients[0], exact.gradients[1]}; }

struct Count {
  int certified = 0, refused = 0, refused_and_rounding = 0;  // tensors
  double fullness = 0;                                       // of calls whose gradients are certified
};

// The first certified tensor that an order computes otherwise than the lattice, or the definition.
std::string certified_but_rounded(const Question& question, Probability probability, Count& count) {
  const Exactness exact = exactness(question, probability);
  const Certificates certified = certificates(exact);
  const Expected expected = cross_entropy::expected(question);
  std::vector<bool> rounds(3);
  for (const Order& order : orders()) {
    if (probability == Probability::quotient && order.share == Share::log_softmax) continue;
    const Answer answer = evaluated(question, order);
    const std::vector<double> got[] = {{answer.loss}, answer.dh, answer.dW};
    for (std::size_t i = 0; i < 3; ++i) {
      const ExpectedTensor& tensor = i == 0 ? expected.outputs[0] : *expected.gradients[i - 1];
      const std::vector<double>& wanted = certified[i] ? *certified[i] : tensor.value;
      if (wanted.size() != got[i].size()) return fmt::format("{} values of {} certified", wanted.size(), tensor.name);
      for (std::size_t e = 0; e < wanted.size(); ++e) {
        if (!(std::fabs(wanted[e] - tensor.value[e]) <= tensor.tolerance[e]))
          return fmt::format("the lattice's {}[{}] is not the definition's", tensor.name, e);
        if (got[i][e] == wanted[e]) continue;
        rounds[i] = true;
        if (certified[i])
          return fmt::format("{}: {}[{}] is {}, certified {}", order.name, tensor.name, e, got[i][e], wanted[e]);
      }
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    ++(certified[i] ? count.certified : count.refused);
    count.refused_and_rounding += !certified[i] && rounds[i];
  }
  if (certified[1] && certified[2]) count.fullness = std::max(count.fullness, exact.fullness);
  return "";
}

// Protects: bit equality is demanded of a candidate only where every correct kernel has it. A single logit on is
// certified for all; 2^j of them for those that divide. Widths run from what is certified to what rounds everywhere.
TEST(CrossEntropyExact, CertifiedMeansBitEqualInEveryOrder) {
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Probability probability : {Probability::exponential, Probability::quotient}) {
      Count count;
      EXPECT_TRUE(holds(1500, [&] {
        const auto within = [](int low, int high) {
          return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high));
        };
        const int V = within(1, 40), N = 1 << within(0, 4);
        int on = 1;
        if (probability == Probability::quotient)
          for (int j = within(0, 5); j > 0 && 2 * on <= V; --j) on *= 2;
        if (within(0, 8) == 0) on = std::min(3, V);
        const TwoLevel t{
            N, V, on, within(1, significand_bits(dtype) + 1), static_cast<std::uint64_t>(within(0, 1 << 30)), dtype};
        return certified_but_rounded(made(t), probability, count);
      }));
      std::cout << fmt::format("{} tensors certified, {} refused, of which {} do round; fullness up to {:.2f}\n",
                               count.certified, count.refused, count.refused_and_rounding, count.fullness);
      EXPECT_GT(count.certified, 1500);
      EXPECT_GT(count.refused_and_rounding, 200);
      EXPECT_GT(count.fullness, 0.5) << "small integers are exact in a lower precision too";
    }
}

std::vector<bool> certified(const Question& question, Probability probability) {
  std::vector<bool> list;
  for (const auto& values : certificates(exactness(question, probability))) list.push_back(values.has_value());
  return list;
}

constexpr auto exponential = Probability::exponential, quotient = Probability::quotient;

// Protects: which tensors are certified at which number of logits on. Several on make the loss round, by their log, and
// p too where it is taken from that log: of 8 equal logits in float64 the log softmax is not 1/8.
TEST(CrossEntropyExact, CertifiesByNumberOn) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const auto with = [&](int N, int on) { return made({N, 20, on, 6, 1, dtype}); };
    EXPECT_EQ(certified(with(4, 1), exponential), (std::vector<bool>{true, true, true}));
    EXPECT_EQ(certified(with(4, 8), exponential), (std::vector<bool>{false, false, false}));
    EXPECT_EQ(certified(with(4, 8), quotient), (std::vector<bool>{false, true, true}));
    EXPECT_EQ(certified(with(4, 3), quotient), (std::vector<bool>{false, false, false})) << "thirds";
    EXPECT_EQ(certified(with(3, 1), exponential), (std::vector<bool>{false, false, false})) << "a mean of 3";
  }
  const Question eight = made({1, 20, 8, 6, 1, DType::float64});
  const auto order =
      std::find_if(orders().begin(), orders().end(), [](const Order& o) { return o.share == Share::log_softmax; });
  EXPECT_NE(evaluated(eight, *order).dW, *exactness(eight, quotient).gradients[1]);
}

// Negative control: levels that are not far enough apart for exp to be 0, and logits that round, are not certified.
TEST(CrossEntropyExact, RefusesWhatRounds) {
  Question near = made({4, 20, 1, 6, 1, DType::float64});
  near.dtype = DType::float64;
  for (std::size_t i = 0; i < 20; ++i)
    if (double* w = &near.inputs[1]->values[3 * i]; w[0] != w[1]) w[0] = w[1] - 300;
  EXPECT_EQ(certified(near, quotient), (std::vector<bool>{false, false, false})) << "e^-300 is no 0 in float64";

  Question wide = made({4, 20, 1, 6, 1, DType::float32});
  wide.inputs[1]->values[0] += 0x1p24 + 2, wide.inputs[1]->values[1] += 0x1p24 + 2;
  EXPECT_EQ(certified(wide, quotient), (std::vector<bool>{false, false, false}));
  EXPECT_GT(exactness(wide).fullness, 1);
}

// Protects: without a cotangent there are no gradients to certify.
TEST(CrossEntropyExact, GradientsOnlyWithACotangent) {
  Question question = made({2, 5, 1, 6, 1, DType::float32});
  question.cotangent.reset();
  EXPECT_TRUE(exactness(question).gradients.empty());
  EXPECT_TRUE(exactness(question).outputs[0].has_value());
}

}  // namespace
}  // namespace fractus::oracle::cross_entropy
