// Every known-wrong form of sample_tokens against its law, each on calls where its fault shows and on one where it does
// not. Each statistic's level is far beyond chance: with fixed seeds the tests give the same verdicts on every run.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "contracts/form.h"
#include "fixtures/sample_tokens/parts.h"

namespace fractus {
namespace {

using at::Tensor;

struct Case {
  std::string name;
  std::int64_t rows, width, vocabulary;
  std::int64_t ce_chunk = 0;
  double temperature = 1;
  void (*adjust)(Tensor& h, Tensor& W) = nullptr;
  std::int64_t first_seed = 1, seed_step = 1;
  int threads = 1;
  std::int64_t copies = 1;  // of all rows, one behind the other: a call's rows are draws of the same laws
};

template <int offset>
void shifted(Tensor& h, Tensor& W) {
  h.select(1, 0).fill_(1);
  W.select(1, 0).fill_(offset);
}
void masked(Tensor& h, Tensor& W) {
  shifted<0>(h, W);
  W.select(1, 0)[3] = -1e30;
}
// The first token and the last have a probability of 9e-4, the others share the rest about evenly.
void unlikely_first(Tensor& h, Tensor& W) {
  h.mul_(0.01);
  shifted<0>(h, W);
  W.select(1, 0)[0] = W.select(1, 0)[W.size(0) - 1] = -5.6;
}
void equal_rows(Tensor& h, Tensor&) { h.copy_(h.narrow(0, 0, 1).expand(h.sizes()).clone()); }
void flat(Tensor& h, Tensor&) { h.mul_(0.01); }
void large_logits(Tensor& h, Tensor& W) {
  shifted<0>(h, W);
  W.select(1, 0).slice(0, 0, 3).fill_(24);
  W.select(1, 0)[1] = 22;
}
void spread(Tensor& h, Tensor&) { h.mul_(2); }
void column_major_W(Tensor&, Tensor& W) { W = W.t().contiguous().t(); }
void column_major_h(Tensor& h, Tensor&) { h = h.t().contiguous().t(); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"plain", 6, 3, 5},
      {"cool", 6, 3, 5, 0, 0.5},
      {"production", 6, 3, 5, 0, 0.9},
      {"cold", 6, 3, 5, 0, 0.15},
      {"chunks", 6, 3, 5, 4},
      {"even_chunks", 6, 3, 5, 3},
      {"cool_chunks", 6, 3, 5, 4, 0.5},
      {"chunk_of_1", 6, 3, 5, 1},
      {"chunk_above_rows", 6, 3, 5, 9},
      {"one_row", 1, 3, 5},
      {"one_token", 6, 3, 1},
      {"prime_vocabulary", 6, 3, 11},
      {"wide", 2, 66, 5, 0, 1, flat},
      {"vocabulary_80", 3, 2, 80},
      {"flat_80", 3, 2, 80, 0, 1, flat},
      {"flat_1100", 2, 2, 1100, 0, 1, flat},
      {"shifted_up", 6, 3, 5, 0, 1, shifted<3000>},
      {"masked", 6, 3, 5, 0, 1, masked},
      {"unlikely_first", 3, 2, 6, 0, 1, unlikely_first},
      {"equal_rows", 6, 3, 5, 0, 1, equal_rows},
      {"large_logits", 6, 3, 5, 0, 1, large_logits},
      {"flat", 6, 3, 5, 0, 1, flat},
      {"many_rows", 70, 3, 5},
      {"column_major_W", 6, 3, 5, 0, 1, column_major_W},
      {"column_major_h", 6, 3, 5, 0, 1, column_major_h},
      {"seeds_from_0", 6, 3, 5, 0, 1, nullptr, 0},
      {"seeds_256_apart", 6, 3, 5, 0, 1, nullptr, 0, 256},
      {"seeds_65536_apart", 6, 3, 5, 0, 1, nullptr, 0, 65536},
      {"seeds_2_31_apart", 6, 3, 5, 0, 1, nullptr, 7, std::int64_t{1} << 31},
      {"seeds_above_2_24", 6, 3, 5, 0, 1, nullptr, (std::int64_t{1} << 24) + 1},
      {"two_threads", 6, 3, 5, 0, 1, nullptr, 1, 1, 2},
      {"many", 3, 3, 5, 0, 1, nullptr, 1, 1, 1, 3000},
      {"many_hot", 3, 3, 5, 0, 3, nullptr, 1, 1, 1, 3000},
      {"many_flat", 3, 3, 5, 0, 1, flat, 1, 1, 1, 10000},
      {"many_flat_80", 3, 2, 80, 0, 1, flat, 1, 1, 1, 4000},
      {"many_flat_300", 2, 2, 300, 0, 1, flat, 1, 1, 1, 2000},
      {"many_flat_20000", 2, 2, 20000, 0, 1, flat, 1, 1, 1, 200},
      {"many_80", 3, 2, 80, 0, 1, nullptr, 1, 1, 1, 2000},
      {"many_spread_80", 3, 2, 80, 0, 1, spread, 1, 1, 1, 1000},
      {"many_masked", 6, 3, 5, 0, 1, masked, 1, 1, 1, 5000},
      {"many_unlikely_first", 3, 2, 6, 0, 1, unlikely_first, 1, 1, 1, 30000},
      {"many_equal", 6, 3, 5, 0, 1, equal_rows, 1, 1, 1, 2000},
  };
  return all;
}

const Case& named(const std::string& name) {
  const auto found = std::find_if(cases().begin(), cases().end(), [&](const Case& c) { return c.name == name; });
  if (found == cases().end()) throw std::out_of_range("no case " + name);
  return *found;
}

struct Inputs {
  Tensor h, W;
};

Inputs made(const Case& c) {
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(5);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  Inputs in{at::randn({c.rows, c.width}, random, options), at::randn({c.vocabulary, c.width}, random, options)};
  if (c.adjust != nullptr) c.adjust(in.h, in.W);
  if (c.copies > 1) in.h = in.h.repeat({c.copies, 1});
  return in;
}

Tensor tokens_of(const Form& form, const Case& c, const Inputs& in, std::int64_t seed) {
  return form
      .run({in.h, in.W},
           {{"ce_chunk", static_cast<double>(c.ce_chunk)},
            {"temperature", c.temperature},
            {"seed", static_cast<double>(seed)}},
           form.settings)
      .at(0);
}

// Standard deviations by which a mean over `count` events of probabilities p is off.
double deviations(double hits, double expected, double variance) {
  return std::abs(hits - expected) / std::sqrt(variance + 1);
}

constexpr double far = 6;  // standard deviations: chance reaches that once in 5e8

// Draws (S,N) against the law (N,V): each token of each row, the cumulative sums, all together, and how often two draws
// of a row are one token.
bool law_is_off(const Tensor& draws, const Tensor& law) {
  const auto count = static_cast<double>(draws.size(0));
  std::vector<Tensor> rows;
  for (std::int64_t row = 0; row < draws.size(1); ++row)
    rows.push_back(at::bincount(draws.select(1, row).contiguous(), {}, law.size(1)).to(at::kDouble));
  const Tensor seen = at::stack(rows);
  if (((law == 0).logical_and(seen > 0)).any().item<bool>()) return true;
  const auto is_far = [&](const Tensor& hits, const Tensor& p) {
    return ((hits - count * p).abs() > far * (count * p * (1 - p)).clamp_min(0).sqrt() + far).any().item<bool>();
  };
  const Tensor chi = (seen - count * law).square() / (count * law).clamp_min(1);
  const double freedom = static_cast<double>(law.numel());
  const Tensor squares = law.square().sum(1), cubes = law.pow(3).sum(1);
  const Tensor expected = squares * (count * (count - 1) / 2),
               variance = expected + (cubes - squares.square()) * std::pow(count, 3);
  const Tensor equal = (seen * (seen - 1)).sum(1) / 2;
  return is_far(seen, law) || is_far(seen.cumsum(1), law.cumsum(1).clamp_max(1)) ||
         chi.sum().item<double>() > freedom + far * std::sqrt(2 * freedom) + far * far ||
         ((equal - expected).abs() > far * (variance + 1).sqrt()).any().item<bool>();
}

// Whether two draws of independent rows agree more or less often than their laws say; a (S), b (S).
bool pair_is_off(const Tensor& a, const Tensor& b, const Tensor& law_a, const Tensor& law_b) {
  const double hits = (a == b).sum().item<double>(), p = (law_a * law_b).sum().item<double>();
  const auto count = static_cast<double>(a.size(0));
  if (deviations(hits, count * p, count * p * (1 - p)) > far) return true;
  // Tokens in order of the cumulative sum follow the uniform numbers: their covariance.
  const auto centred = [](const Tensor& draws, const Tensor& law) {
    const Tensor rank = law.cumsum(0).index_select(0, draws), mean = (law * law.cumsum(0)).sum();
    return rank - mean;
  };
  const Tensor product = centred(a, law_a) * centred(b, law_b);
  return deviations(product.sum().item<double>() * 10, 0, product.square().sum().item<double>() * 100) > far;
}

// What is wrong with a form on a case: "law", "pairs", "seeds" or what a single call shows; "" where nothing is.
std::string fault(const Form& form, const Case& c) {
  Inputs in = made(c);
  const Inputs before{in.h.clone(), in.W.clone()};
  const Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const int threads = at::get_num_threads();
  at::set_num_threads(c.threads);
  const Tensor first = tokens_of(form, c, in, 3);
  const bool kept = at::get_num_threads() == c.threads && at::equal(in.h, before.h) && at::equal(in.W, before.W) &&
                    at::equal(state, at::detail::getDefaultCPUGenerator().get_state());
  at::set_num_threads(threads);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
  if (!kept) return "call";
  if (first.scalar_type() != at::kLong || first.dim() != 1 || first.size(0) != in.h.size(0)) return "call";
  at::set_num_threads(c.threads);

  const Tensor x = at::matmul(in.h.narrow(0, 0, c.rows), in.W.t());
  const Tensor law = at::softmax(x / c.temperature, 1);
  const std::int64_t count = c.seed_step == std::int64_t{1} << 31 ? 2 : c.copies > 1 ? 3 : 200;
  std::vector<Tensor> drawn;
  for (std::int64_t s = 0; s < count; ++s)
    drawn.push_back(tokens_of(form, c, in, c.first_seed + s * c.seed_step).clone());
  const Tensor draws = at::stack(drawn).reshape({-1, c.rows});
  const Tensor again = tokens_of(form, c, in, c.first_seed);
  at::set_num_threads(threads);
  if (!at::equal(again, drawn[0])) return "repeat";
  if ((draws < 0).logical_or(draws >= c.vocabulary).any().item<bool>()) return "call";
  if (c.vocabulary == 1) return "";
  // Seeds too few for statistics: equal throughout is too much of a coincidence.
  if (count == 2) return at::equal(drawn[0], drawn[1]) ? "seeds" : "";
  if (std::all_of(drawn.begin(), drawn.end(), [&](const Tensor& each) { return at::equal(each, drawn[0]); }))
    return "seeds";
  if (law_is_off(draws, law)) return "law";
  // The same row, or another one, a few seeds later.
  const auto later = [&](std::int64_t row, std::int64_t lag) { return draws.select(1, row).slice(0, lag); };
  const auto sooner = [&](std::int64_t row, std::int64_t lag) { return draws.select(1, row).slice(0, 0, count - lag); };
  for (std::int64_t row = 0; row < std::min<std::int64_t>(c.rows, 6) && c.copies == 1; ++row)
    for (std::int64_t other = 0; other < std::min<std::int64_t>(c.rows, 6); ++other)
      for (const std::int64_t lag : {1, 2, 3})
        if (pair_is_off(later(row, lag), sooner(other, lag), law[row], law[other])) return "seeds";
  for (std::int64_t row = 0; row < c.rows; ++row)
    for (std::int64_t other = 0; other < row; ++other)
      if (pair_is_off(draws.select(1, row), draws.select(1, other), law[row], law[other])) return "pairs";
  return "";
}

// Protects: what the wrong forms are made of draws from the law, so that each has the one fault that it names.
TEST(WrongSampleTokens, IsMadeOfRightParts) {
  const Form right = sample_tokens::wrong::variant("right", "", sample_tokens::wrong::Parts{});
  for (const Case& c : cases()) EXPECT_EQ(fault(right, c), "") << c.name;
}

// A form, what is found, the case it is found on, and one on which nothing is, or none.
struct Row {
  const char *form, *fault, *wrong_on, *right_on;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows{
      {"wrong_temperature_ignored", "law", "cool", "plain"},
      {"wrong_temperature_squared", "law", "cool", "plain"},
      {"wrong_temperature_multiplies", "law", "cool", "plain"},
      {"wrong_temperature_of_production", "law", "cool", "production"},
      {"wrong_temperature_at_least_half", "law", "cold", "plain"},
      {"wrong_temperature_on_probabilities", "law", "plain", "one_token"},
      {"wrong_argmax", "seeds", "plain", "one_token"},
      {"wrong_argmax_at_times", "law", "many_flat", "one_token"},
      {"wrong_argmax_often", "law", "many", "one_token"},
      {"wrong_uniform_at_times", "law", "many_unlikely_first", "many_flat"},
      {"wrong_top_50", "law", "many_flat_80", "many"},
      {"wrong_nucleus", "law", "many_unlikely_first", "one_token"},
      {"wrong_unlikely_dropped", "law", "many_unlikely_first", "flat"},
      {"wrong_last_token_never", "law", "many", "one_token"},
      {"wrong_token_0_never", "law", "many", "one_token"},
      {"wrong_tail_never", "law", "many_flat_80", "many"},
      {"wrong_blocks_not_rescaled", "law", "many_spread_80", "many"},
      {"wrong_border_token_twice", "law", "many_flat_80", "many"},
      {"wrong_masked_at_times", "law", "many_masked", "many"},
      {"wrong_logits_bfloat16", "law", "shifted_up", "flat"},
      {"wrong_no_shift", "law", "shifted_up", "plain"},
      {"wrong_logits_at_most_20", "law", "large_logits", "plain"},
      {"wrong_sums_bfloat16", "law", "many_flat_300", "plain"},
      {"wrong_one_token_further", "law", "plain", "one_token"},
      {"wrong_one_token_back", "law", "plain", "one_token"},
      {"wrong_uniforms_of_8_bits", "law", "many_flat_300", "plain"},
      {"wrong_uniforms_of_12_bits", "law", "many_flat_20000", "many"},
      {"wrong_uniforms_squared", "law", "plain", "one_token"},
      {"wrong_uniforms_clamped", "law", "many_unlikely_first", "many_flat"},
      {"wrong_gumbel_of_other_sign", "law", "many", "one_token"},
      {"wrong_gumbel_scaled", "law", "cool", "plain"},
      {"wrong_gumbel_repeats_in_blocks", "law", "many_flat_80", "many"},
      {"wrong_gumbel_with_epsilon", "law", "many_unlikely_first", "one_token"},
      {"wrong_logistic_noise", "law", "many", "one_token"},
      {"wrong_same_in_each_chunk", "pairs", "even_chunks", "plain"},
      {"wrong_same_for_all_rows", "pairs", "plain", "one_row"},
      {"wrong_same_for_pairs", "pairs", "plain", "one_row"},
      {"wrong_same_every_64_rows", "pairs", "many_rows", "plain"},
      {"wrong_border_row_repeats", "pairs", "even_chunks", "plain"},
      {"wrong_antithetic_rows", "pairs", "plain", "one_row"},
      {"wrong_systematic_rows", "pairs", "plain", "one_row"},
      {"wrong_close_rows", "pairs", "plain", "one_row"},
      {"wrong_without_replacement", "law", "plain", "one_row"},
      {"wrong_equal_rows_once", "pairs", "equal_rows", "plain"},
      {"wrong_repetition_penalty", "pairs", "many", "one_row"},
      {"wrong_next_row_at_borders", "law", "even_chunks", "plain"},
      {"wrong_short_chunk_steps_back", "law", "chunks", "even_chunks"},
      {"wrong_laws_of_first_chunk", "law", "even_chunks", "plain"},
      {"wrong_last_row_has_the_one_before", "law", "plain", "one_row"},
      {"wrong_short_chunk_without_temperature", "law", "cool_chunks", "plain"},
      {"wrong_seed_ignored", "seeds", "plain", "one_token"},
      {"wrong_seed_of_8_bits", "seeds", "seeds_256_apart", "plain"},
      {"wrong_seed_of_16_bits", "seeds", "seeds_65536_apart", "plain"},
      {"wrong_seed_of_31_bits", "seeds", "seeds_2_31_apart", "plain"},
      {"wrong_seed_without_last_bit", "seeds", "plain", "many"},
      {"wrong_seed_float32", "seeds", "seeds_above_2_24", "plain"},
      {"wrong_seed_and_row_added", "seeds", "plain", "one_row"},
      {"wrong_odd_seeds_antithetic", "seeds", "plain", "many"},
      {"wrong_first_row_of_all_seeds", "law", "plain", "many"},
      {"wrong_seeds_on_a_lattice", "seeds", "plain", "many"},
      {"wrong_tokens_int32", "call", "plain", ""},
      {"wrong_tokens_in_float", "call", "plain", ""},
      {"wrong_tokens_in_a_column", "call", "plain", ""},
      {"wrong_token_V", "call", "plain", ""},
      {"wrong_token_minus_1", "call", "plain", ""},
      {"wrong_global_generator", "call", "plain", ""},
      {"wrong_global_generator_seeded", "call", "plain", ""},
      {"wrong_global_generator_moved", "call", "plain", ""},
      {"wrong_h_divided_in_place", "call", "cool", "plain"},
      {"wrong_W_shifted_and_restored", "call", "plain", ""},
      {"wrong_threads_changed", "call", "plain", ""},
      {"wrong_strides_of_W_ignored", "law", "column_major_W", "plain"},
      {"wrong_strides_of_h_ignored", "law", "column_major_h", "plain"},
      {"wrong_stream_goes_on", "repeat", "plain", "one_token"},
      {"wrong_replayed_for_its_extents", "seeds", "plain", "one_token"},
      {"wrong_with_two_threads", "law", "two_threads", "plain"},
      {"wrong_argmax_at_one_row", "seeds", "one_row", "plain"},
      {"wrong_argmax_at_chunk_above_rows", "seeds", "chunk_above_rows", "plain"},
      {"wrong_argmax_at_chunk_of_1", "seeds", "chunk_of_1", "chunks"},
      {"wrong_argmax_when_cold", "seeds", "cold", "plain"},
      {"wrong_argmax_at_prime_vocabulary", "seeds", "prime_vocabulary", "plain"},
      {"wrong_argmax_above_1024_tokens", "seeds", "flat_1100", "flat_80"},
      {"wrong_argmax_above_width_64", "seeds", "wide", "plain"},
      {"wrong_uniform_when_hot", "law", "many_hot", "plain"},
      {"wrong_seed_of_the_call_before", "repeat", "plain", "one_token"},
  };
  return rows;
}

// Found by tests of their own below, or by memory or the domain alone: right by all statistics of these cases.
const std::vector<std::string>& found_elsewhere() {
  static const std::vector<std::string> names{"wrong_seed_0_is_1",
                                              "wrong_seed_xor_row",
                                              "wrong_tokens_in_one_buffer",
                                              "wrong_global_generator_without_rows",
                                              "wrong_last_token_unwritten",
                                              "wrong_nan_row_draws_V",
                                              "wrong_nan_spoils_all_rows",
                                              "wrong_temperature_0_draws_V",
                                              "wrong_negative_chunk_draws_nothing",
                                              "wrong_outside_seed_draws_nothing",
                                              "wrong_holds_all_logits",
                                              "wrong_chunk_ignored",
                                              "wrong_keeps_all_tokens",
                                              "wrong_leaks_a_workspace"};
  return names;
}

const Form& wrong_form(const std::string& name) {
  const Form* form = find_form("sample_tokens", name);
  if (form == nullptr) throw std::out_of_range("no form " + name);
  return *form;
}

// Protects: a fault shows where its summary says and nowhere else, so that a plan that catches it has seen that kind.
TEST(WrongSampleTokens, ShowsWhereItsSummarySays) {
  for (const Row& row : table()) {
    const std::string right_on = row.right_on;
    if (!right_on.empty()) {
      EXPECT_EQ(fault(wrong_form(row.form), named(right_on)), "") << row.form << ", " << right_on;
    }
    EXPECT_EQ(fault(wrong_form(row.form), named(row.wrong_on)), row.fault) << row.form << ", " << row.wrong_on;
  }
}

// Protects: a form whose memory or manners are wrong is not caught by its tokens instead.
TEST(WrongSampleTokens, IsRightInTokensWhereThoseAreNotItsFault) {
  for (const std::string& name : found_elsewhere())
    if (name != "wrong_last_token_unwritten" && name != "wrong_seed_xor_row") {
      for (const char* on : {"chunks", "production"})
        EXPECT_EQ(fault(wrong_form(name), named(on)), "") << name << ", " << on;
    }
}

// Protects: no form is left out of the tables above.
TEST(WrongSampleTokens, IsTestedWhole) {
  std::set<std::string> tested(found_elsewhere().begin(), found_elsewhere().end());
  for (const Row& row : table()) tested.insert(row.form);
  for (const Form& form : forms())
    if (form.kernel == "sample_tokens" && form.role == Role::wrong) {
      EXPECT_TRUE(tested.contains(form.name)) << form.name;
    }
}

// Protects: the faults of two calls show with those two.
TEST(WrongSampleTokens, DependsOnOtherCalls) {
  const Case& c = named("many_rows");
  const Inputs in = made(c);
  const Tensor kept = tokens_of(wrong_form("wrong_tokens_in_one_buffer"), c, in, 1), copy = kept.clone();
  tokens_of(wrong_form("wrong_tokens_in_one_buffer"), c, in, 2);
  EXPECT_FALSE(at::equal(kept, copy));
}

// Protects: the faults of two seeds show with those two.
TEST(WrongSampleTokens, SharesStreamsBetweenSeeds) {
  const Case& c = named("many_equal");
  const Inputs in = made(c);
  const Form right = sample_tokens::wrong::variant("right", "", sample_tokens::wrong::Parts{});
  const auto are_one = [&](const Form& form) {
    return at::equal(tokens_of(form, c, in, 0), tokens_of(form, c, in, 1));
  };
  EXPECT_TRUE(are_one(wrong_form("wrong_seed_0_is_1")));
  EXPECT_FALSE(are_one(right));
  const auto in_pairs = [&](const Form& form, std::int64_t seed) {  // rows 2i and 2i + 1, which have one law
    return std::get<0>(tokens_of(form, c, in, seed).view({-1, 2}).sort(1));
  };
  const Form& exclusive_or = wrong_form("wrong_seed_xor_row");
  EXPECT_TRUE(at::equal(in_pairs(exclusive_or, 0), in_pairs(exclusive_or, 1)));
  EXPECT_FALSE(at::equal(in_pairs(right, 0), in_pairs(right, 1)));
}

// Protects: without rows, nothing is to be drawn, and the one form that seeds the global generator there does.
TEST(WrongSampleTokens, LeavesNoRowsAlone) {
  const Form right = sample_tokens::wrong::variant("right", "", sample_tokens::wrong::Parts{});
  for (const Form& form : {right, wrong_form("wrong_global_generator_without_rows")}) {
    at::manual_seed(99);
    const Tensor state = at::detail::getDefaultCPUGenerator().get_state();
    Inputs in = made(named("plain"));
    in.h = in.h.narrow(0, 0, 0);
    EXPECT_EQ(tokens_of(form, named("plain"), in, 1).sizes(), at::IntArrayRef({0}));
    const bool is_kept = at::equal(state, at::detail::getDefaultCPUGenerator().get_state());
    EXPECT_EQ(is_kept, form.name == "right");
  }
}

// Protects: a form that lets input pass gives what is no token there, and the right parts throw.
TEST(WrongSampleTokens, TakesInputFromOutsideOfTheDomain) {
  struct Outside {
    std::string form;
    double temperature = 1, ce_chunk = 0, seed = 1;
    bool nan_in_h = false;
  };
  const std::vector<Outside> all{
      {.form = "wrong_nan_row_draws_V", .nan_in_h = true},
      {.form = "wrong_nan_spoils_all_rows", .nan_in_h = true},
      {.form = "wrong_temperature_0_draws_V", .temperature = 0},
      {.form = "wrong_negative_chunk_draws_nothing", .ce_chunk = -1},
      {.form = "wrong_outside_seed_draws_nothing", .seed = 0x1p32},
      {.form = "wrong_outside_seed_draws_nothing", .seed = -1},
  };
  const Form right = sample_tokens::wrong::variant("right", "", sample_tokens::wrong::Parts{});
  for (const Outside& each : all) {
    const Inputs in = made(named("plain"));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (each.nan_in_h) in.h.select(0, 1).fill_(nan);
    const auto tokens = [&](const Form& form) {
      return form
          .run({in.h, in.W}, {{"ce_chunk", each.ce_chunk}, {"temperature", each.temperature}, {"seed", each.seed}},
               form.settings)
          .at(0);
    };
    EXPECT_THROW(tokens(right), std::invalid_argument) << each.form;
    const Tensor drawn = tokens(wrong_form(each.form));
    EXPECT_TRUE((drawn < 0).logical_or(drawn >= 5).any().item<bool>()) << each.form;
  }
}

// Protects: what nobody writes is not the right token. Fresh memory holds a number that is no token.
TEST(WrongSampleTokens, LeavesTheLastTokenUnwritten) {
  const bool was = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, false);
  const Tensor drawn = tokens_of(wrong_form("wrong_last_token_unwritten"), named("plain"), made(named("plain")), 1);
  at::globalContext().setDeterministicAlgorithms(was, false);
  EXPECT_GT(drawn[5].item<std::int64_t>(), 4);
}

}  // namespace
}  // namespace fractus
