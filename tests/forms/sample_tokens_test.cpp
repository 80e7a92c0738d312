// Every form of sample_tokens: its law on small vocabularies, rows and seeds independent of each other, tokens of
// probability 0, what a call may leave behind and what it refuses.
#include "contracts/sample_tokens.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "contracts/form.h"
#include "harness/worker/allocator.h"
#include "tests/forms/complaint.h"

namespace fractus::sample_tokens {
namespace {

using at::Tensor;

Scalars scalars(double ce_chunk, double temperature, double seed) {
  return {{"ce_chunk", ce_chunk}, {"temperature", temperature}, {"seed", seed}};
}

Tensor drawn(const Form& form, const Tensors& inputs, const Scalars& with) {
  return form.run(inputs, with, form.settings)[0];
}

// (rows, words): every row has these logits.
Tensors repeated(const std::vector<double>& logits, std::int64_t rows, at::ScalarType dtype = at::kFloat) {
  return {at::ones({rows, 1}, dtype), at::tensor(logits, at::kDouble).to(dtype).unsqueeze(1)};
}

// The largest |count - expected| over the standard deviation of that count, over the words. For a right form each is
// near normal: 6 is passed with a probability below 2e-9 a word.
double worst_deviation(const Tensor& tokens, const std::vector<double>& law) {
  const Tensor counts = tokens.bincount({}, static_cast<std::int64_t>(law.size()));
  const auto n = static_cast<double>(tokens.numel());
  double worst = counts.size(0) > static_cast<std::int64_t>(law.size()) ? INFINITY : 0;
  for (std::size_t i = 0; i < law.size(); ++i) {
    const auto count = counts[static_cast<std::int64_t>(i)].item<double>();
    const double deviation = std::sqrt(n * law[i] * (1 - law[i]));
    worst = std::max(worst, deviation > 0         ? std::abs(count - n * law[i]) / deviation
                            : count == n * law[i] ? 0
                                                  : INFINITY);
  }
  return worst;
}

std::vector<double> law_of(const std::vector<double>& logits, double temperature) {
  std::vector<double> law;
  double total = 0;
  for (const double x : logits) total += law.emplace_back(std::exp(x / temperature));
  for (double& p : law) p /= total;
  return law;
}

std::vector<const Form*> right_forms() {
  std::vector<const Form*> found;
  for (const Form& form : forms())
    if (form.kernel == "sample_tokens" && form.role != Role::wrong) found.push_back(&form);
  return found;
}

struct Sampler : testing::TestWithParam<const Form*> {
  const Form& form() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Forms, Sampler, testing::ValuesIn(right_forms()),
                         [](const testing::TestParamInfo<const Form*>& info) { return info.param->name; });

const std::vector<double> uneven{0.5, -2, 1.75, 0, -1, 0.25, -3};

// Protects: the law of a row, with its temperature, in either dtype, whatever the chunks. The control is the law of
// another temperature, which the same draws are far from.
TEST_P(Sampler, DrawsFromTheSoftmax) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (const double ce_chunk : {0, 997}) {
      const Tensor tokens = drawn(form(), repeated(uneven, 40000, dtype), scalars(ce_chunk, 0.9, 11));
      EXPECT_LT(worst_deviation(tokens, law_of(uneven, 0.9)), 6) << ce_chunk;
      EXPECT_GT(worst_deviation(tokens, law_of(uneven, 1.0)), 6) << ce_chunk;
    }
}

// Protects: the whole of a large vocabulary is reached, an eighth of the draws in each eighth of it.
TEST_P(Sampler, ReachesALargeVocabulary) {
  const std::int64_t words = 50257, rows = 200;
  const Tensor tokens = drawn(form(), {at::zeros({rows, 1}), at::zeros({words, 1})}, scalars(64, 0.9, 3));
  EXPECT_LT(worst_deviation((tokens * 8).div(words, "floor").to(at::kLong), std::vector<double>(8, 0.125)), 6);
}

// Protects: each row has its own logits, at chunk borders too.
TEST_P(Sampler, GivesEachRowItsOwnLaw) {
  const std::int64_t rows = 23;
  const Tensor h = at::eye(rows), W = at::eye(rows) * 2000;  // row n can only draw n
  for (const double ce_chunk : {0, 1, 2, 5, 22, 23, 24, 1000})
    EXPECT_TRUE(at::equal(drawn(form(), {h, W}, scalars(ce_chunk, 0.9, 5)), at::arange(rows))) << ce_chunk;
}

// Protects: words whose exponential is 0 are never drawn, at either end and between, and the others are.
TEST_P(Sampler, NeverDrawsWhatHasNoProbability) {
  const Tensor tokens = drawn(form(), repeated({-1e30, 0, -1e30, 0, -1e30}, 20000), scalars(1000, 0.9, 6));
  EXPECT_LT(worst_deviation(tokens, {0, 0.5, 0, 0.5, 0}), 6);
}

// Protects: pairs of draws, of neighbours, of the rows of two chunks and of two seeds, are as frequent as if
// independent. The control is a sampler that draws every row alike.
TEST_P(Sampler, DrawsRowsAndSeedsIndependently) {
  const std::int64_t rows = 30000, chunk = 100;
  const std::vector<double> logits{0, 1, 0.5}, law = law_of(logits, 1);
  std::vector<double> pairs;
  for (const double p : law)
    for (const double q : law) pairs.push_back(p * q);
  const auto paired = [](const Tensor& a, const Tensor& b) { return a * 3 + b; };
  const Tensors inputs = repeated(logits, rows);
  const Tensor tokens = drawn(form(), inputs, scalars(chunk, 1, 8)),
               other = drawn(form(), inputs, scalars(chunk, 1, 9));
  for (const std::int64_t apart : {std::int64_t{1}, std::int64_t{16}, chunk})
    EXPECT_LT(worst_deviation(paired(tokens.slice(0, 0, rows - apart), tokens.slice(0, apart)), pairs), 6.5) << apart;
  EXPECT_LT(worst_deviation(paired(tokens, other), pairs), 6);
  EXPECT_GT(worst_deviation(paired(tokens, tokens), pairs), 6);

  // The first draws of neighbouring seeds, which a generator that is seeded badly has in common.
  std::vector<Tensor> firsts;
  for (int seed = 0; seed < 1500; ++seed) firsts.push_back(drawn(form(), repeated(logits, 2), scalars(0, 1, seed)));
  const Tensor first = at::stack(firsts).select(1, 0);
  EXPECT_LT(worst_deviation(first, law), 6);
  EXPECT_LT(worst_deviation(paired(first.slice(0, 0, at::nullopt, 2), first.slice(0, 1, at::nullopt, 2)), pairs), 6);
}

// Protects: the seed alone decides, also of the largest and whatever was drawn before; nothing global moves; the result
// is its own and tracks nothing, with grad mode on and off.
TEST_P(Sampler, IsRepeatableAndLeavesNothing) {
  const Tensors inputs{at::randn({50, 4}).requires_grad_(), at::randn({30, 4}).requires_grad_()};
  const Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
  std::set<std::string> different;
  for (const double seed : {0.0, 1.0, 0x1p31, 0x1p32 - 1}) {
    const Tensor tokens = drawn(form(), inputs, scalars(7, 0.9, seed));
    EXPECT_FALSE(tokens.requires_grad());
    EXPECT_EQ(tokens.scalar_type(), at::kLong);
    EXPECT_EQ(tokens.sizes(), at::IntArrayRef({50}));
    EXPECT_TRUE(tokens.ge(0).logical_and(tokens.lt(30)).all().item<bool>());
    drawn(form(), inputs, scalars(7, 0.9, 77));
    const c10::NoGradGuard no_gradient;
    EXPECT_TRUE(at::equal(tokens, drawn(form(), inputs, scalars(7, 0.9, seed)))) << seed;
    std::string text;
    for (std::int64_t n = 0; n < 50; ++n) text += std::to_string(tokens[n].item<std::int64_t>()) + ' ';
    different.insert(text);
  }
  EXPECT_EQ(different.size(), 4u);
  EXPECT_TRUE(at::equal(random_state, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_TRUE(at::GradMode::is_enabled());
}

// Protects: strides change nothing.
TEST_P(Sampler, TakesAnyStrides) {
  const Tensor h = at::randn({50, 4}), W = at::randn({30, 4});
  const auto sliced = [](const Tensor& x) { return x.repeat_interleave(2, 1).slice(1, 0, at::nullopt, 2); };
  const Tensor plain = drawn(form(), {h, W}, scalars(7, 0.9, 1));
  EXPECT_TRUE(at::equal(plain, drawn(form(), {h.t().contiguous().t(), W.t().contiguous().t()}, scalars(7, 0.9, 1))));
  EXPECT_TRUE(at::equal(plain, drawn(form(), {sliced(h), sliced(W)}, scalars(7, 0.9, 1))));
}

// Protects: no rows give no tokens; input outside the domain is refused by name.
TEST_P(Sampler, RefusesBadInput) {
  const Tensor none = drawn(form(), {at::ones({0, 4}), at::ones({3, 4})}, scalars(7, 0.9, 1));
  EXPECT_EQ(none.sizes(), at::IntArrayRef({0}));
  EXPECT_EQ(none.scalar_type(), at::kLong);

  const auto complaint = [&](
                             const Scalars& with, void (*spoil)(Tensors&) = [](Tensors&) {}) {
    Tensors inputs{at::ones({30, 5}), at::ones({11, 5})};
    spoil(inputs);
    return complaint_of<std::invalid_argument>([&] { drawn(form(), inputs, with); });
  };
  const Scalars good = scalars(7, 0.9, 1);
  EXPECT_EQ(complaint(good), "");
  EXPECT_EQ(complaint(scalars(-1, 0.9, 1)), "sample_tokens: ce_chunk: wanted a whole number of 0 or more, got -1");
  EXPECT_EQ(complaint(scalars(7, 0, 1)), "sample_tokens: temperature: wanted a finite number above 0, got 0");
  EXPECT_EQ(complaint(scalars(7, -1, 1)), "sample_tokens: temperature: wanted a finite number above 0, got -1");
  EXPECT_EQ(complaint(scalars(7, NAN, 1)), "sample_tokens: temperature: wanted a finite number above 0, got nan");
  EXPECT_EQ(complaint(scalars(7, INFINITY, 1)), "sample_tokens: temperature: wanted a finite number above 0, got inf");
  EXPECT_EQ(complaint(scalars(7, 0.9, -1)), "sample_tokens: seed: wanted a whole number in [0, 2^32), got -1");
  EXPECT_EQ(complaint(scalars(7, 0.9, 0x1p32)),
            "sample_tokens: seed: wanted a whole number in [0, 2^32), got 4294967296");
  EXPECT_EQ(complaint(good, [](Tensors& in) { in[0][25][2] = NAN; }),
            "sample_tokens: h: wanted finite values, got nan in row 25");
  EXPECT_EQ(complaint(good, [](Tensors& in) { in[0][25][2] = -INFINITY; }),
            "sample_tokens: h: wanted finite values, got -inf in row 25");
  EXPECT_EQ(complaint(good, [](Tensors& in) { in[1][3][2] = NAN; }),
            "sample_tokens: W: wanted finite values, got nan in row 3");
  EXPECT_EQ(complaint(good, [](Tensors& in) { in[0][25].fill_(1e30), in[1].fill_(1e30); }),
            "sample_tokens: h: the logits of row 25 are not finite");
  EXPECT_EQ(complaint(good, [](Tensors& in) { in[1] = in[1].narrow(0, 0, 0); }),
            "sample_tokens: W: wanted at least one row, got (0, 5)");
}

// Protects: the chunked form's memory does not grow with the rows, and is what it declares. `dense_multinomial`, which
// holds them all, is the control.
TEST(SamplerMemory, IsFlatInTheRows) {
  worker::install_allocator();
  const auto held = [](const std::string& name, std::int64_t rows) {
    const Form& form = *find_form("sample_tokens", name);
    const Tensors inputs{at::ones({rows, 4}), at::ones({3000, 4})};
    const Scalars with = scalars(16, 0.9, 1);
    worker::restart_peak();
    const std::int64_t before = worker::live_bytes();
    const Tensor tokens = drawn(form, inputs, with);
    const std::int64_t bytes = worker::peak_bytes() - before - static_cast<std::int64_t>(tokens.nbytes());
    if (form.declares.extra_elements) {
      EXPECT_LE(bytes, form.declares.extra_elements(dims_of(contract(), inputs, with), form.settings) * 4);
    }
    return bytes;
  };
  EXPECT_LE(held("chunked_sampler", 512) - held("chunked_sampler", 64), 16 * 3000 * 4);
  EXPECT_GE(held("dense_multinomial", 512) - held("dense_multinomial", 64), 448 * 3000 * 4);
}

}  // namespace
}  // namespace fractus::sample_tokens
