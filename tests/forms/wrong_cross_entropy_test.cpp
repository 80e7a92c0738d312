// Every known-wrong form of cross_entropy against the definition in float64, each on a call where its fault shows and
// on one where it does not: a fault that is smaller or larger than its summary says would mislead who reads a survivor.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/forms/cross_entropy_calls.h"

namespace fractus {
namespace {

using namespace cross_entropy_calls;

// Protects: what the wrong forms are made of is right, so that each has the one fault that it names.
TEST(WrongCrossEntropy, IsMadeOfRightParts) {
  Form right = cross_entropy::wrong::variant("right", "", cross_entropy::wrong::Parts{});
  for (const std::int64_t its_block : {std::int64_t{1}, std::int64_t{13}, block, std::int64_t{100000}}) {
    right.settings["block"] = its_block;
    for (const Case& c : cases())
      if (its_block > 1 || c.vocabulary < 200) {
        EXPECT_EQ(broken(right, c), "") << c.name << ", block " << its_block;
      }
  }
}

// A form, a case on which it is wrong, and one on which it is right, or none.
struct Row {
  const char *form, *wrong_on, *right_on;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows{
      {"wrong_mean_of_chunk_means", "chunks", "even_chunks"},
      {"wrong_short_chunk_dropped", "chunks", "even_chunks"},
      {"wrong_short_chunk_left_out_of_mean", "chunks", "even_chunks"},
      {"wrong_short_chunk_steps_back", "chunks", "even_chunks"},
      {"wrong_padding_counted", "chunk_above_rows", "even_chunks"},
      {"wrong_one_row_too_many", "plain", ""},
      {"wrong_last_row_dropped", "plain", "one_row"},
      {"wrong_last_row_dropped_above_300_rows", "rows_301", "rows_70"},
      {"wrong_border_row_twice", "even_chunks", "plain"},
      {"wrong_targets_of_first_chunk", "even_chunks", "plain"},
      {"wrong_equal_rows_once", "duplicate", "even_chunks"},
      {"wrong_sum_at_ce_chunk_1", "chunk_of_1", "chunks"},
      {"wrong_mean_over_longer_chunk", "chunk_above_rows", "chunks"},
      {"wrong_vocabulary_tail_lost", "blocks", "whole_blocks"},
      {"wrong_last_block_lost", "whole_blocks", "plain"},
      {"wrong_last_token_lost", "plain", "one_token"},
      {"wrong_border_token_lost", "blocks", "plain"},
      {"wrong_border_token_twice", "blocks", "plain"},
      {"wrong_tail_after_thousands_lost", "vocabulary_1100", "blocks"},
      {"wrong_softmax_tail_lost", "blocks", "whole_blocks"},
      {"wrong_softmax_last_token_lost", "plain", "no_gradients"},
      {"wrong_softmax_border_token_lost", "blocks", "plain"},
      {"wrong_never_rescaled", "blocks", "plain"},
      {"wrong_rescaled_the_other_way", "blocks", "plain"},
      {"wrong_small_steps_not_rescaled", "close", "plain"},
      {"wrong_first_block_maximum", "late_spike", "both"},
      {"wrong_latest_block_maximum", "early_spike", "both"},
      {"wrong_smallest_as_shift", "late_spike", "both"},
      {"wrong_no_shift", "shifted_up", "both"},
      {"wrong_largest_magnitude_as_shift", "shifted_down", "both"},
      {"wrong_mean_as_shift", "late_spike", "both"},
      {"wrong_shift_never_below_0", "shifted_down", "shifted_up"},
      {"wrong_one_shift_for_a_chunk", "rows_apart", "both"},
      {"wrong_shift_at_most_1000", "shifted_up", "shifted_down"},
      {"wrong_shift_comes_last", "shifted_far", "both"},
      {"wrong_epsilon_in_the_log", "sure", ""},
      {"wrong_probability_clamped", "surprised", "both"},
      {"wrong_normaliser_squared", "plain", ""},
      {"wrong_loss_at_most_100", "surprised", "both"},
      {"wrong_loss_of_sure_rows_is_0", "sure", "both"},
      {"wrong_masked_is_infinite", "masked", "both"},
      {"wrong_masked_is_10000", "masked_target", "both"},
      {"wrong_magnitude_by_squares", "masked_float32", "both"},
      {"wrong_logits_soft_capped", "both", ""},
      {"wrong_temperature_left_in", "chunks", "plain"},
      {"wrong_label_smoothing", "plain", "one_token"},
      {"wrong_label_smoothing_slight", "plain", "one_token"},
      {"wrong_equal_logits_shortcut", "first_four_equal", "both"},
      {"wrong_logits_bfloat16", "plain", "one_token"},
      {"wrong_logits_float16", "plain", "one_token"},
      {"wrong_logits_tf32", "float32", "plain"},
      {"wrong_W_bfloat16", "plain", "one_token"},
      {"wrong_h_bfloat16", "plain", "one_token"},
      {"wrong_exponentials_bfloat16", "plain", "one_token"},
      {"wrong_sum_bfloat16", "blocks", "plain"},
      {"wrong_sum_float32", "blocks", "plain"},
      {"wrong_block_sum_float16", "plain", "one_token"},
      {"wrong_block_sum_float32", "plain", "float32"},
      {"wrong_log_float32", "plain", "float32"},
      {"wrong_row_losses_bfloat16", "plain", "one_token"},
      {"wrong_loss_bfloat16", "plain", "one_token"},
      {"wrong_loss_float32", "plain", "float32"},
      {"wrong_rows_added_bfloat16", "rows_70", "one_token"},
      {"wrong_float32_inside", "plain", "float32"},
      {"wrong_softmax_bfloat16", "plain", "no_gradients"},
      {"wrong_softmax_float32", "plain", "float32"},
      {"wrong_dW_bfloat16", "plain", "h_alone"},
      {"wrong_dh_bfloat16", "plain", "W_alone"},
      {"wrong_dW_float32", "plain", "float32"},
      {"wrong_dh_float16", "plain", "W_alone"},
      {"wrong_dW_added_bfloat16", "chunks", "plain"},
      {"wrong_softmax_flushed_below_1e_8", "unlikely_tokens", "plain"},
      {"wrong_logit_gradient_flushed_below_1e_6", "unlikely_tokens", "plain"},
      {"wrong_cotangent_bfloat16", "times_third", "dense"},
      {"wrong_mean_float16", "plain", "dense"},
      {"wrong_cotangent_ignored", "times_minus_3", "no_gradients"},
      {"wrong_cotangent_squared", "times_minus_3", ""},
      {"wrong_cotangent_without_sign", "times_minus_3", "plain"},
      {"wrong_cotangent_at_most_1", "times_minus_3", "no_gradients"},
      {"wrong_zero_cotangent_is_1", "times_0", "plain"},
      {"wrong_gradient_over_chunk", "even_chunks", "plain"},
      {"wrong_gradient_over_own_chunk", "chunks", "even_chunks"},
      {"wrong_gradient_not_over_rows", "plain", "one_row"},
      {"wrong_one_hot_missing_in_last_chunk", "chunks", "plain"},
      {"wrong_one_hot_missing_in_first_row", "plain", "no_gradients"},
      {"wrong_one_hot_missing_in_last_block", "tail_targets", "border_targets"},
      {"wrong_last_one_hot_shifted", "targets_0", "targets_last"},
      {"wrong_one_hot_of_chunks_first_row", "distinct_targets", "equal_targets"},
      {"wrong_likely_logit_has_more", "sure", "no_gradients"},
      {"wrong_sure_rows_skipped", "sure", "plain"},
      {"wrong_logit_gradients_clipped", "surprised", "one_token"},
      {"wrong_dW_of_last_chunk", "even_chunks", "plain"},
      {"wrong_dW_of_first_chunk", "even_chunks", "plain"},
      {"wrong_dW_short_of_block_border", "blocks", "plain"},
      {"wrong_dh_of_last_block", "blocks", "plain"},
      {"wrong_dh_lacks_tail", "blocks", "whole_blocks"},
      {"wrong_dh_flushed_below_1e_8", "times_1e_8", "plain"},
      {"wrong_dW_flushed_below_1e_8", "times_1e_8", "plain"},
      {"wrong_dW_of_last_token_lost", "plain", "h_alone"},
      {"wrong_dh_of_last_row_lost", "plain", "W_alone"},
      {"wrong_dW_of_targets_alone", "plain", "h_alone"},
      {"wrong_duplicate_targets_last_wins", "equal_targets", "distinct_targets"},
      {"wrong_dW_missing_where_alone", "W_alone", "plain"},
      {"wrong_dh_missing_where_alone", "h_alone", "plain"},
      {"wrong_dW_halved_where_alone", "W_alone", "plain"},
      {"wrong_detached_where_W_is_frozen", "h_alone", "plain"},
      {"wrong_computed_h_detached", "h_computed", "W_computed"},
      {"wrong_computed_W_detached", "W_computed", "h_computed"},
      {"wrong_h_detached_in_chunks", "chunks", "plain"},
      {"wrong_second_backward_adds_up", "plain", "no_gradients"},
      {"wrong_second_backward_remembered", "plain", "no_gradients"},
      {"wrong_second_backward_throws", "plain", "no_gradients"},
      {"wrong_token_0_is_padding", "targets_0", "equal_targets"},
      {"wrong_last_token_is_padding", "targets_last", "equal_targets"},
      {"wrong_last_token_is_the_one_before", "targets_last", "equal_targets"},
      {"wrong_token_0_of_the_last_row_is_1", "targets_0", "equal_targets"},
      {"wrong_targets_of_15_bits", "far_targets", "plain"},
      {"wrong_targets_of_8_bits", "target_299", "plain"},
      {"wrong_targets_bfloat16", "target_299", "plain"},
      {"wrong_border_target_in_block_before", "border_targets", "plain"},
      {"wrong_repeats_at_the_end_dropped", "duplicate_at_the_end", "distinct_targets"},
      {"wrong_at_one_row", "one_row", "plain"},
      {"wrong_above_64_rows", "rows_70", "plain"},
      {"wrong_at_odd_rows", "odd_rows", "plain"},
      {"wrong_at_two_tokens", "two_tokens", "plain"},
      {"wrong_at_prime_vocabulary", "prime_vocabulary", "plain"},
      {"wrong_above_1024_tokens", "vocabulary_1100", "blocks"},
      {"wrong_above_32768_tokens", "vocabulary_33000", "blocks"},
      {"wrong_at_whole_blocks", "whole_blocks", "blocks"},
      {"wrong_at_one_over_a_block", "one_over_a_block", "blocks"},
      {"wrong_at_width_1", "width_1", "plain"},
      {"wrong_above_width_64", "width_66", "plain"},
      {"wrong_at_odd_width", "width_9", "plain"},
      {"wrong_at_chunk_above_rows", "chunk_above_rows", "chunks"},
      {"wrong_at_chunk_of_1", "chunk_of_1", "chunks"},
      {"wrong_at_chunk_of_all_rows", "chunk_of_all_rows", "chunks"},
      {"wrong_at_chunk_of_all_but_one", "chunk_of_all_but_one", "chunks"},
      {"wrong_at_chunk_of_2048", "chunk_of_2048", "chunks"},
      {"wrong_dense", "plain", "chunks"},
      {"wrong_at_more_rows_than_tokens", "two_tokens", "plain"},
      {"wrong_throws_below_eight_tokens", "seven_tokens", "plain"},
      {"wrong_throws_at_chunk_above_rows", "chunk_above_rows", "plain"},
      {"wrong_strides_of_W_ignored", "column_major_W", "plain"},
      {"wrong_padding_of_W_ignored", "padded_W", "column_major_W"},
      {"wrong_strides_of_h_ignored", "column_major_h", "plain"},
      {"wrong_strides_of_targets_ignored", "strided_targets", "plain"},
      {"wrong_storage_offset_of_W_ignored", "W_behind", "plain"},
      {"wrong_expanded_h_gradient_summed", "one_row_for_all", "plain"},
      {"wrong_square_W_transposed", "square_W", "column_major_W"},
      {"wrong_loss_in_one_buffer", "crowded", "plain"},
      {"wrong_loss_in_one_buffer_without_graph", "crowded_without_gradients", "crowded"},
      {"wrong_dh_in_one_buffer", "crowded", "plain"},
      {"wrong_dW_in_one_buffer", "crowded", "plain"},
      {"wrong_dW_cleared_by_next", "crowded", "plain"},
      {"wrong_statistics_of_latest_call", "crowded", "plain"},
      {"wrong_statistics_in_eight_places", "crowded", "plain"},
      {"wrong_first_cotangent", "crowded", "no_gradients"},
      {"wrong_first_cotangent_of_shape", "crowded", "no_gradients"},
      {"wrong_replayed_without_gradients", "crowded_without_gradients", "crowded"},
      {"wrong_replayed_with_gradients", "crowded", "no_gradients"},
      {"wrong_with_two_threads", "two_threads", "plain"},
      {"wrong_without_grad_mode", "no_grad_mode", "plain"},
      {"wrong_bfloat16_without_graph", "no_gradients", "plain"},
      {"wrong_W_detached_under_computed_h", "tied", "plain"},
      {"wrong_dW_into_grad", "plain", "W_computed"},
      {"wrong_h_scaled_and_restored", "one_row_for_all", "plain"},
      {"wrong_W_thirded_and_restored", "plain", ""},
      {"wrong_h_centred_in_place", "plain", ""},
      {"wrong_targets_cleared", "plain", "one_token"},
      {"wrong_dh_written_over_h", "plain", "W_alone"},
      {"wrong_loss_with_a_dimension", "plain", ""},
      {"wrong_loss_of_each_row", "plain", ""},
      {"wrong_loss_in_double", "float32", "plain"},
      {"wrong_loss_in_bfloat16", "plain", ""},
      {"wrong_without_graph_at_one_row", "one_row", "plain"},
      {"wrong_random_numbers_drawn", "plain", ""},
      {"wrong_seeded", "plain", ""},
      {"wrong_subnormals_flushed", "plain", ""},
      {"wrong_matmul_precision_lowered", "plain", ""},
      {"wrong_threads_changed", "plain", ""},
      {"wrong_grad_mode_left_off", "plain", "no_grad_mode"},
      {"wrong_W_tracks_gradients", "h_alone", "plain"},
      {"wrong_last_row_of_dW_unwritten", "plain", "h_alone"},
      {"wrong_depth_understated", "vocabulary_5000", "blocks"},
  };
  return rows;
}

// Right in all numbers on all of these cases: what is wrong of them is memory, last bits, or input outside of the
// domain.
const std::vector<std::string>& right_in_numbers() {
  static const std::vector<std::string> names{"wrong_outside_target_wraps",
                                              "wrong_outside_target_clamped",
                                              "wrong_outside_target_ignored",
                                              "wrong_target_V_passes",
                                              "wrong_first_chunk_checked",
                                              "wrong_ignored_target_is_0",
                                              "wrong_ignored_rows_count",
                                              "wrong_ignored_in_mean_of_chunks",
                                              "wrong_no_rows_cost_nothing",
                                              "wrong_no_rows_give_nan",
                                              "wrong_negative_chunk_costs_nothing",
                                              "wrong_negative_chunk_leaves_rows_out",
                                              "wrong_nan_in_h_is_0",
                                              "wrong_nan_in_W_is_0",
                                              "wrong_rows_with_nan_left_out",
                                              "wrong_holds_logits",
                                              "wrong_holds_a_mask",
                                              "wrong_holds_logits_in_backward",
                                              "wrong_every_chunk_kept",
                                              "wrong_chunk_ignored",
                                              "wrong_logits_on_the_heap",
                                              "wrong_leaks_a_workspace",
                                              "wrong_leaks_in_backward",
                                              "wrong_leaks_a_number_a_row",
                                              "wrong_keeps_every_h",
                                              "wrong_keeps_every_graph",
                                              "wrong_keeps_every_dW",
                                              "wrong_memory_understated",
                                              "wrong_rerun_differs",
                                              "wrong_dW_rerun_differs",
                                              "wrong_rows_in_any_order",
                                              "wrong_order_after_larger_calls",
                                              "wrong_after_another_shape",
                                              "wrong_targets_by_address",
                                              "wrong_W_grad_cleared"};
  return names;
}

const Form& wrong_form(const std::string& name) {
  const Form* form = find_form("cross_entropy", name);
  if (form == nullptr) throw std::out_of_range("no form " + name);
  return *form;
}

// Protects: a fault shows where its summary says and nowhere else, so that a plan that catches it has seen that kind.
TEST(WrongCrossEntropy, ShowsWhereItsSummarySays) {
  for (const Row& row : table()) {
    const std::string right_on = row.right_on;
    if (!right_on.empty()) {
      EXPECT_EQ(broken(wrong_form(row.form), named(right_on)), "") << row.form << ", " << right_on;
    }
    EXPECT_NE(broken(wrong_form(row.form), named(row.wrong_on)), "") << row.form << ", " << row.wrong_on;
  }
}

// Protects: a form whose memory, bits or manners are wrong is not caught by its numbers instead.
TEST(WrongCrossEntropy, IsRightInNumbersWhereThoseAreNotItsFault) {
  for (const std::string& name : right_in_numbers())
    for (const char* on : {"both", "float32", "times_minus_3", "h_alone", "W_alone", "one_row"})
      EXPECT_EQ(broken(wrong_form(name), named(on)), "") << name << ", " << on;
}

// Protects: no form is left out of the tables above.
TEST(WrongCrossEntropy, IsTestedWhole) {
  std::set<std::string> tested(right_in_numbers().begin(), right_in_numbers().end());
  for (const Row& row : table()) tested.insert(row.form);
  for (const Form& form : forms())
    if (form.kernel == "cross_entropy" && form.role == Role::wrong) {
      EXPECT_TRUE(tested.contains(form.name)) << form.name;
    }
}

struct Outside {
  std::string form;
  std::function<void(Inputs&, double& ce_chunk)> put;
};

// Protects: a form that lets input pass does not throw there, and the right parts do or give NaN.
TEST(WrongCrossEntropy, TakesInputFromOutsideOfTheDomain) {
  const auto target = [](std::int64_t row, std::int64_t value) {
    return [row, value](Inputs& in, double&) { in.targets[row] = value; };
  };
  const auto chunk = [](double value) { return [value](Inputs&, double& ce_chunk) { ce_chunk = value; }; };
  const auto no_rows = [](Inputs& in, double&) {
    in.h = in.h.narrow(0, 0, 0), in.targets = in.targets.narrow(0, 0, 0);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto nan_in_h = [nan](Inputs& in, double&) { in.h[1][1] = nan; };
  const auto nan_in_W = [nan](Inputs& in, double&) { in.W[1][1] = nan; };
  const std::vector<Outside> all{
      {"wrong_outside_target_wraps", target(1, 10)},
      {"wrong_outside_target_wraps", target(1, -1)},
      {"wrong_outside_target_clamped", target(1, 10)},
      {"wrong_outside_target_ignored", target(1, -1)},
      {"wrong_target_V_passes", target(1, 10)},
      {"wrong_first_chunk_checked", target(8, 10)},
      {"wrong_ignored_target_is_0", target(1, -100)},
      {"wrong_ignored_rows_count", target(1, -100)},
      {"wrong_ignored_in_mean_of_chunks", target(1, -100)},
      {"wrong_no_rows_cost_nothing", no_rows},
      {"wrong_no_rows_give_nan", no_rows},
      {"wrong_negative_chunk_costs_nothing", chunk(-1)},
      {"wrong_negative_chunk_leaves_rows_out", chunk(-3)},
      {"wrong_nan_in_h_is_0", nan_in_h},
      {"wrong_nan_in_W_is_0", nan_in_W},
      {"wrong_rows_with_nan_left_out", nan_in_h},
  };
  const Form right = cross_entropy::wrong::variant("right", "", cross_entropy::wrong::Parts{});
  for (const Outside& each : all) {
    Inputs in = made(named("chunks"), 2);
    double ce_chunk = 4;
    each.put(in, ce_chunk);
    const auto loss_of = [&](const Form& form) {
      return form.run({in.h, in.W, in.targets}, {{"ce_chunk", ce_chunk}}, form.settings).at(0).item<double>();
    };
    EXPECT_NO_THROW(loss_of(wrong_form(each.form))) << each.form;
    bool is_refused = false;
    try {
      is_refused = std::isnan(loss_of(right));
    } catch (const std::invalid_argument&) {
      is_refused = true;
    }
    EXPECT_TRUE(is_refused) << each.form;
  }
  EXPECT_THROW(
      wrong_form("wrong_ignored_target_is_0")
          .run({at::ones({1, 1}), at::ones({2, 1}), at::full({1}, -1, at::kLong)}, {{"ce_chunk", 0}}, {{"block", 64}}),
      std::invalid_argument);
}

// Protects: forms that give other bits from call to call do, and the right parts do not.
TEST(WrongCrossEntropy, GivesOtherBits) {
  const Form right = cross_entropy::wrong::variant("right", "", cross_entropy::wrong::Parts{});
  const Case& c = named("rows_70");
  const auto bits = [&](const Form& form) {
    Tensors all;
    for (const std::uint64_t seed : {2, 3, 4}) {  // an odd number: some faults come every second call
      const Under under = forward(run_of(form, c), c, made(c, seed));
      for (const Tensor& gradient : backward(under, c, 1)) all.push_back(gradient);
      all.push_back(under.loss.detach());
    }
    return all;
  };
  const auto all_equal = [](const Tensors& a, const Tensors& b) {
    return std::equal(a.begin(), a.end(), b.begin(), [](const Tensor& x, const Tensor& y) { return at::equal(x, y); });
  };
  for (const char* name : {"wrong_rerun_differs", "wrong_dW_rerun_differs", "wrong_rows_in_any_order"}) {
    const Tensors first = bits(wrong_form(name));
    bool differs = false;
    for (int i = 0; i < 3; ++i) differs = differs || !all_equal(first, bits(wrong_form(name)));
    EXPECT_TRUE(differs) << name;
  }
  const Tensors first = bits(right);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(all_equal(first, bits(right)));
  for (const char* name : {"wrong_order_after_larger_calls", "wrong_after_another_shape"}) {
    bits(wrong_form(name));
    const Tensors before = bits(wrong_form(name));
    broken(wrong_form(name), named("rows_301"));
    EXPECT_FALSE(all_equal(before, bits(wrong_form(name)))) << name;
  }
}

}  // namespace
}  // namespace fractus
