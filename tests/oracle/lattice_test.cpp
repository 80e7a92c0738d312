// The exactness certificate: where it says that no correct order rounds, none of the 20 may differ in a single bit.
#include <fmt/format.h>

#include "tests/oracle/draws.h"
#include "tests/oracle/orders.h"
#include "tests/oracle/property.h"

namespace fractus::oracle::linear_attention {
namespace {

struct LatticeCall {
  Question question;
  std::vector<int> units;  // of the inputs: each is a multiple of 2^units[i]
};

// Integers of up to `bits` bits, times a power of two of each tensor's own. Balanced: q's last coordinate is 1 and k's
// makes every den a power of two, so that the division is exact too.
LatticeCall lattice_call(const Draw& draw, int bits, bool balanced) {
  Values values(draw.seed);
  LatticeCall call{made(draw, DType::float32), {}};
  const double most = std::ldexp(1.0, bits);
  const auto D = static_cast<std::size_t>(draw.D);
  auto& in = call.question.inputs;
  for (auto* list : {&in, &call.question.cotangents})
    for (auto& array : *list)
      if (array) fill_with(*array, [&] { return std::trunc(values.uniform(-most, most) * 0.999); });
  std::vector<double> z = in[4] ? in[4]->values : std::vector<double>(D);
  for (std::size_t t = 0; balanced && t < static_cast<std::size_t>(draw.T); ++t) {
    double* q = &in[0]->values[t * D];
    double* k = &in[1]->values[t * D];
    q[D - 1] = 1, k[D - 1] = -z[D - 1] + values.sign() * std::ldexp(1.0, static_cast<int>(values.uniform(0, 4)));
    for (std::size_t p = 0; p + 1 < D; ++p) k[D - 1] -= q[p] * (z[p] + k[p]);
    for (std::size_t p = 0; p < D; ++p) z[p] += k[p];
  }
  const auto exponent = [&] { return static_cast<int>(values.uniform(0, 9)); };
  const int q = exponent(), k = exponent(), v = exponent(), g = exponent();
  call.units = {q, k, v, k + v, k};
  const std::vector<int> cotangent_units{g, g - k, g + v - k};
  for (std::size_t i = 0; i < 5; ++i)
    if (in[i])
      for (double& x : in[i]->values) x = std::ldexp(x, call.units[i]);
  for (std::size_t j = 0; j < call.question.cotangents.size(); ++j)
    if (auto& array = call.question.cotangents[j])
      for (double& x : array->values) x = std::ldexp(x, cotangent_units[j]);
  return call;
}

struct Count {
  int certified = 0, refused = 0, refused_and_rounding = 0;  // tensors
  double fullness = 0;                                       // of fully certified calls
};

using Certificates = std::vector<std::optional<std::vector<double>>>;

Certificates certificates(const Exactness& exact) {
  Certificates list = exact.outputs;
  list.insert(list.end(), exact.gradients.begin(), exact.gradients.end());
  return list;
}

// Compares one order with the values of the lattice, or of the definition where nothing is certified. `rounds` is set
// for a tensor that this order does round.
std::string compared(const Order& order, const Answer<float>& answer, const Certificates& certified,
                     const Expected& expected, std::vector<bool>& rounds) {
  for (std::size_t i = 0; i < certified.size(); ++i) {
    const ExpectedTensor& tensor = i < 3 ? expected.outputs[i] : *expected.gradients[i - 3];
    const std::vector<double>& wanted = certified[i] ? *certified[i] : tensor.value;
    if (wanted.size() != answer[i].size())
      return fmt::format("{} of {} values of {} certified", wanted.size(), answer[i].size(), tensor.name);
    for (std::size_t e = 0; e < wanted.size(); ++e) {
      if (!(std::fabs(wanted[e] - tensor.value[e]) <= tensor.tolerance[e]))
        return fmt::format("the lattice's {}[{}] is not the definition's", tensor.name, e);
      if (static_cast<double>(answer[i][e]) == wanted[e]) continue;
      rounds[i] = true;
      if (certified[i])
        return fmt::format("{}: {}[{}] is {}, certified {}", order.name, tensor.name, e, answer[i][e], wanted[e]);
    }
  }
  return "";
}

// Balancing may ask for a k that is wider than the significand: no call at all.
bool representable(const Question& question) {
  const auto fits = [](double x) { return x == rounded(x, DType::float32); };
  return std::all_of(question.inputs[1]->values.begin(), question.inputs[1]->values.end(), fits);
}

// The first certified tensor that an order computes otherwise than the lattice.
std::string certified_but_rounded(const LatticeCall& call, Count& count) {
  const Exactness exact = exactness(call.question);
  const Certificates certified = certificates(exact);
  const Expected expected = linear_attention::expected(call.question);
  const Problem<float> problem = problem_of<float>(call.question);
  std::vector<bool> rounds(8);
  for (const Order& order : orders())
    if (const std::string wrong = compared(order, evaluated(problem, order), certified, expected, rounds);
        !wrong.empty())
      return wrong;

  bool all = true;
  for (std::size_t i = 0; i < certified.size(); ++i) {
    ++(certified[i] ? count.certified : count.refused);
    count.refused_and_rounding += !certified[i] && rounds[i];
    all = all && certified[i];
  }
  if (all) count.fullness = std::max(count.fullness, exact.fullness);
  if (all != (exact.fullness <= 1)) return fmt::format("fullness {} does not fit the certificate", exact.fullness);
  return "";
}

// Whether y, S and z are certified.
std::vector<bool> outputs_certified(const Question& question) {
  std::vector<bool> list;
  for (const auto& values : exactness(question).outputs) list.push_back(values.has_value());
  return list;
}

// Protects: bit equality is demanded of a candidate only where every correct order has it. Widths from 1 bit to 11 run
// from what is certified whole to what rounds everywhere; the counts show that both kinds are among the draws.
TEST(Lattice, CertifiedMeansBitEqualInEveryOrder) {
  for (const bool balanced : {true, false}) {
    Count count;
    EXPECT_TRUE(holds(2000, [&] {
      const int bits = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, 12));
      const LatticeCall call = lattice_call(*draws(8, 4), bits, balanced);
      RC_PRE(representable(call.question));
      return certified_but_rounded(call, count);
    }));
    std::cout << fmt::format(
        "balanced {}: {} tensors certified, {} refused, of which {} do round; fullness up to {:.2f}\n", balanced,
        count.certified, count.refused, count.refused_and_rounding, count.fullness);
    EXPECT_GT(count.certified, 2000);
    EXPECT_GT(count.refused_and_rounding, 500);
    // Small integers are exact in bfloat16 too: the intermediates have to come near 24 bits for an exact test to see
    // it.
    EXPECT_GT(count.fullness, balanced ? 0.5 : 0);
  }
}

// Negative control: integers that are each exact, with a sum of products that is not, are refused, tensor by tensor.
TEST(Lattice, RefusesWhatIsTooWide) {
  LatticeCall call = lattice_call({4, 2, Fill::features, 3, true, true, 0}, 2, true);
  ASSERT_EQ(outputs_certified(call.question), (std::vector<bool>{true, true, true}));
  call.question.inputs[2]->values[0] = std::ldexp(0x1p24 - 1, call.units[2]);  // v: y and S become too wide, z does not
  EXPECT_EQ(outputs_certified(call.question), (std::vector<bool>{false, false, true}));
  EXPECT_GT(exactness(call.question).fullness, 1);
}

// Negative control: a den of 3 makes y round, while S and z stay exact.
TEST(Lattice, RefusesADivisionThatRounds) {
  LatticeCall call = lattice_call({1, 1, Fill::features, 3, false, false, 0}, 2, true);
  for (std::size_t i = 0; i < 3; ++i) call.question.inputs[i]->values[0] = std::ldexp(i == 0 ? 3 : 1, call.units[i]);
  EXPECT_EQ(outputs_certified(call.question), (std::vector<bool>{false, true, true}));
}

Question column(std::vector<double> q, std::vector<double> k, std::vector<double> v, std::vector<double> z0) {
  const auto D = static_cast<std::int64_t>(q.size());
  const auto row = [&](const char* name, std::vector<double> values) {
    return Array{name, DType::float32, {1, 1, D}, std::move(values)};
  };
  return {.inputs = {row("q", q), row("k", k), row("v", v), std::nullopt,
                     Array{"z0", DType::float32, {1, D}, std::move(z0)}}};
}

bool y_certified(const Question& question) { return outputs_certified(question)[0]; }

// Protects: y is certified only where den is exact in every order, not where it merely ends at a power of two.
TEST(Lattice, RefusesADenominatorThatRounds) {
  EXPECT_FALSE(y_certified(column({1, 1, 1}, {1, 0, 1}, {1, 1, 1}, {0x1p25, 0, -0x1p25})));
}

// Protects: the same where it ends at 0 and the row is cut: an order that rounds does not cut it.
TEST(Lattice, RefusesAZeroThatRounds) {
  EXPECT_FALSE(y_certified(column({1, 1, 1}, {1, 0, -1}, {1, 1, 1}, {0x1p25, 0, -0x1p25})));
}

// Protects: a den between the cut and 2^-12, where the definition divides, is not certified as cut.
TEST(Lattice, RefusesASmallDenominator) { EXPECT_FALSE(y_certified(column({0x1p-14}, {3}, {1}, {0}))); }

}  // namespace
}  // namespace fractus::oracle::linear_attention
