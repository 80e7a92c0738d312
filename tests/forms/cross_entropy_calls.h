// Calls of cross_entropy, and whether a form is right on one: in its numbers, its manners, and with others between.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "contracts/form.h"
#include "fixtures/cross_entropy/parts.h"

namespace fractus {
namespace cross_entropy_calls {

using at::Tensor;

struct Inputs {
  Tensor h, W, targets;
};

struct Case {
  std::string name;
  std::int64_t rows, width, vocabulary, ce_chunk = 0;
  at::ScalarType dtype = at::kDouble;
  void (*adjust)(Inputs&) = nullptr;
  double cotangent = 1;
  bool dh = true, dW = true;
  enum { leaves, h_computed, W_computed, tied } from = leaves;
  bool no_grad_mode = false;
  bool crowded = false;  // other calls of its shape come before, between forward and backward, and after
  int threads = 1;
};

inline constexpr std::int64_t block = 64;  // the default of all wrong forms

// On a grid, so that an offset of any size leaves the logits exact.
inline void on_grid(Inputs& in) {
  for (Tensor* x : {&in.h, &in.W}) *x = (*x * 16).round() / 16;
}

template <int offset>
inline void shifted(Inputs& in) {
  on_grid(in);
  in.h.select(1, 0).fill_(1);
  in.W.select(1, 0).fill_(offset);
}

// Rows whose maxima are 3000 apart.
inline void rows_apart(Inputs& in) {
  shifted<1000>(in);
  in.h.select(1, 0).slice(0, 0, at::nullopt, 2).fill_(-2);
}

inline void spike_in_later_block(Inputs& in) {
  shifted<0>(in);
  in.W.select(0, 100)[0] = 3000;
}

// The spike falls below what a later block holds.
inline void spike_in_first_block(Inputs& in) {
  shifted<0>(in);
  in.W.select(0, 5)[0] = 3000;
}

// The target's logit is `factor`, the others' are smaller in magnitude.
inline void scaled_targets(Inputs& in, double factor) {
  in.W = in.W / in.W.square().sum(1, true).sqrt();
  in.h = in.W.index_select(0, in.targets) * factor;
}
inline void sure(Inputs& in) { scaled_targets(in, 40); }
inline void surprised(Inputs& in) { scaled_targets(in, -300); }
inline void unlikely_tokens(Inputs& in) {
  shifted<0>(in);
  in.W.select(1, 0).slice(0, 3, 6).fill_(-18);
}

inline void masked_first_block(Inputs& in) {
  shifted<0>(in);
  in.W.select(1, 0).narrow(0, 0, block).fill_(-1e30);
  in.targets.fill_(100);
}
inline void masked_target(Inputs& in) {
  shifted<0>(in);
  in.W.select(1, 0)[3] = -1e5;
  in.targets.fill_(3);
}

inline void first_four_equal(Inputs& in) { in.W.narrow(0, 0, 4).copy_(in.W.narrow(0, 0, 1).expand({4, in.W.size(1)})); }
inline void close_logits(Inputs& in) { in.W.mul_(1e-4); }
inline void one_duplicate(Inputs& in) {
  in.h.select(0, 4).copy_(in.h.select(0, 1));
  in.targets[4] = in.targets[1];
}
template <int target>
inline void targets_at(Inputs& in) {
  in.targets.fill_(target < 0 ? in.W.size(0) + target : target);
}
template <int target>
inline void last_target_at(Inputs& in) {
  targets_at<2>(in);
  in.targets[in.targets.size(0) - 1] = target < 0 ? in.W.size(0) + target : target;
}

inline void last_two_alike(Inputs& in) {
  in.targets.copy_(at::arange(in.targets.size(0), at::kLong));
  in.targets[in.targets.size(0) - 1] = in.targets[in.targets.size(0) - 2];
}
inline void one_target_per_row(Inputs& in) { in.targets.copy_(at::arange(in.targets.size(0), at::kLong)); }

inline void column_major_W(Inputs& in) { in.W = in.W.t().contiguous().t(); }
inline void column_major_h(Inputs& in) { in.h = in.h.t().contiguous().t(); }
inline void every_second_target(Inputs& in) {
  in.targets = at::stack({in.targets, (in.targets + 1).remainder(in.W.size(0))}, 1).select(1, 0);
}
inline void W_behind_another(Inputs& in) { in.W = at::cat({in.W * 2, in.W}).narrow(0, in.W.size(0), in.W.size(0)); }
inline void padded_W(Inputs& in) { in.W = at::cat({in.W, in.W * 2}, 1).narrow(1, 0, in.W.size(1)); }
inline void one_row_for_all(Inputs& in) { in.h = in.h.narrow(0, 0, 1).expand(in.h.sizes()); }

inline const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"plain", 6, 4, 10},
      {"dense", 8, 4, 10},
      {"chunks", 10, 4, 10, 4},
      {"even_chunks", 8, 4, 10, 4},
      {"blocks", 6, 4, 150},
      {"whole_blocks", 6, 4, 128},
      {"both", 10, 5, 150, 4},
      {"float32", 10, 5, 150, 4, at::kFloat},
      {"grid_float32", 6, 4, 10, 4, at::kFloat, on_grid},
      {"chunk_of_1", 5, 4, 10, 1},
      {"chunk_above_rows", 6, 4, 10, 9},
      {"chunk_of_all_rows", 6, 4, 10, 6},
      {"chunk_of_all_but_one", 6, 4, 10, 5},
      {"chunk_of_2048", 6, 4, 10, 2048},
      {"one_row", 1, 4, 10},
      {"one_token", 4, 4, 1},
      {"two_tokens", 4, 4, 2},
      {"seven_tokens", 4, 4, 7},
      {"prime_vocabulary", 4, 4, 67},
      {"one_over_a_block", 4, 4, 129},
      {"rows_70", 70, 2, 80},
      {"rows_301", 301, 2, 302},
      {"odd_rows", 9, 4, 10},
      {"width_1", 6, 1, 10},
      {"width_9", 6, 9, 10},
      {"width_66", 6, 66, 10},
      {"vocabulary_1100", 4, 3, 1100},
      {"vocabulary_5000", 2, 2, 5000},
      {"vocabulary_33000", 2, 2, 33000},
      {"far_targets", 2, 2, 33000, 0, at::kDouble, targets_at<-1>},
      {"target_299", 4, 3, 302, 0, at::kDouble, targets_at<299>},
      {"shifted_up", 6, 4, 150, 4, at::kDouble, shifted<3000>},
      {"shifted_down", 6, 4, 150, 4, at::kDouble, shifted<-3000>},
      {"shifted_far", 6, 4, 150, 4, at::kDouble, shifted<(1 << 24)>, 1, false, false},
      {"rows_apart", 6, 4, 150, 4, at::kDouble, rows_apart},
      {"late_spike", 6, 4, 150, 4, at::kDouble, spike_in_later_block},
      {"early_spike", 6, 4, 150, 4, at::kDouble, spike_in_first_block},
      {"sure", 6, 16, 10, 4, at::kDouble, sure},
      {"surprised", 6, 4, 10, 4, at::kDouble, surprised},
      {"unlikely_tokens", 6, 4, 10, 4, at::kDouble, unlikely_tokens},
      {"masked", 6, 4, 150, 4, at::kDouble, masked_first_block},
      {"masked_float32", 6, 4, 150, 4, at::kFloat, masked_first_block},
      {"masked_target", 6, 4, 150, 4, at::kDouble, masked_target},
      {"first_four_equal", 6, 4, 10, 0, at::kDouble, first_four_equal},
      {"close", 6, 4, 150, 0, at::kDouble, close_logits},
      {"duplicate", 6, 4, 10, 4, at::kDouble, one_duplicate},
      {"targets_0", 6, 4, 10, 4, at::kDouble, last_target_at<0>},
      {"targets_last", 6, 4, 10, 4, at::kDouble, last_target_at<-1>},
      {"border_targets", 6, 4, 150, 4, at::kDouble, targets_at<block>},
      {"tail_targets", 6, 4, 150, 4, at::kDouble, targets_at<-2>},
      {"equal_targets", 6, 4, 10, 4, at::kDouble, targets_at<2>},
      {"duplicate_at_the_end", 6, 4, 10, 4, at::kDouble, last_two_alike},
      {"distinct_targets", 6, 4, 10, 4, at::kDouble, one_target_per_row},
      {"column_major_W", 6, 4, 10, 4, at::kDouble, column_major_W},
      {"square_W", 6, 4, 4, 4, at::kDouble, column_major_W},
      {"column_major_h", 6, 4, 10, 4, at::kDouble, column_major_h},
      {"strided_targets", 6, 4, 10, 4, at::kDouble, every_second_target},
      {"W_behind", 6, 4, 10, 4, at::kDouble, W_behind_another},
      {"padded_W", 6, 4, 10, 4, at::kDouble, padded_W},
      {"one_row_for_all", 6, 4, 10, 4, at::kDouble, one_row_for_all},
      {"times_minus_3", 6, 4, 10, 4, at::kDouble, nullptr, -3},
      {"times_third", 10, 4, 10, 4, at::kDouble, nullptr, 1.0 / 3},
      {"times_0", 6, 4, 10, 4, at::kDouble, nullptr, 0},
      {"times_1e_8", 6, 4, 10, 4, at::kDouble, nullptr, 1e-8},
      {"h_alone", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, false},
      {"W_alone", 6, 4, 10, 4, at::kDouble, nullptr, 1, false, true},
      {"no_gradients", 6, 4, 10, 4, at::kDouble, nullptr, 1, false, false},
      {"h_computed", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, true, Case::h_computed},
      {"W_computed", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, true, Case::W_computed},
      {"tied", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, true, Case::tied},
      {"no_grad_mode", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, true, Case::leaves, true},
      {"crowded", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, true, Case::leaves, false, true},
      {"crowded_without_gradients", 6, 4, 10, 4, at::kDouble, nullptr, 1, false, false, Case::leaves, false, true},
      {"two_threads", 6, 4, 10, 4, at::kDouble, nullptr, 1, true, true, Case::leaves, false, false, 2},
  };
  return all;
}

inline const Case& named(const std::string& name) {
  const auto found = std::find_if(cases().begin(), cases().end(), [&](const Case& c) { return c.name == name; });
  if (found == cases().end()) throw std::out_of_range("no case " + name);
  return *found;
}

inline Inputs made(const Case& c, std::uint64_t seed) {
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  Inputs in{at::randn({c.rows, c.width}, random, options), at::randn({c.vocabulary, c.width}, random, options),
            at::randint(0, c.vocabulary, {c.rows}, random, at::kLong)};
  if (c.adjust != nullptr) c.adjust(in);
  if (c.dtype != at::kDouble) in.h = in.h.to(c.dtype), in.W = in.W.to(c.dtype);
  return in;
}

using Run = std::function<Tensor(const Tensor& h, const Tensor& W, const Tensor& targets)>;

inline Run run_of(const Form& form, const Case& c) {
  return [&form, &c](const Tensor& h, const Tensor& W, const Tensor& targets) {
    const Tensors outputs = form.run({h, W, targets}, {{"ce_chunk", static_cast<double>(c.ce_chunk)}}, form.settings);
    return outputs.at(0);
  };
}

// The definition, by torch's own logsumexp in float64.
inline Tensor definition(const Tensor& h, const Tensor& W, const Tensor& targets) {
  const Tensor x = at::matmul(h, W.t());
  const Tensor shifted = x - x.detach().amax(1, true);
  return (at::logsumexp(shifted, {1}) - shifted.gather(1, targets.unsqueeze(1)).squeeze(1)).mean();
}

struct Under {
  Tensor loss;
  Tensors roots;  // those of h and W
};

inline Under forward(const Run& run, const Case& c, const Inputs& in) {
  Tensor h = in.h.detach().set_requires_grad(c.dh), W = in.W.detach().set_requires_grad(c.dW);
  const c10::AutoGradMode mode(!c.no_grad_mode);
  Tensor given_h = h, given_W = W;
  if (c.from == Case::h_computed) given_h = h * 2;
  if (c.from == Case::W_computed) given_W = W * 2;
  if (c.from == Case::tied) given_h = h + W.index_select(0, (in.targets + 1).remainder(W.size(0)));
  const Tensor loss = run(given_h, given_W, in.targets);
  if (c10::GradMode::is_enabled() == c.no_grad_mode) throw std::runtime_error("grad mode was changed");
  return {loss, {h, W}};
}

inline Tensors backward(const Under& under, const Case& c, double cotangent) {
  torch::autograd::variable_list wanted;
  for (const Tensor& root : under.roots)
    if (root.requires_grad()) wanted.push_back(root);
  if (c.no_grad_mode || wanted.empty() || !under.loss.requires_grad()) return {};
  return torch::autograd::grad({under.loss}, wanted, {at::full_like(under.loss, cotangent)}, /*retain_graph=*/true,
                               false, /*allow_unused=*/true);
}

// Rounding leaves less than this, and all faults more.
inline std::string difference(const std::string& what, const Tensor& got, const Tensor& wanted, double tolerance,
                              double least_scale) {
  if (!got.defined()) return what + ": none";
  if (got.sizes() != wanted.sizes()) return what + ": another shape";
  if (wanted.numel() == 0) return "";
  const double scale = std::max(least_scale, wanted.abs().max().item<double>());
  const Tensor apart = (got.detach().to(at::kDouble) - wanted.detach()).abs();
  return (apart <= tolerance * scale).all().item<bool>() ? "" : what + ": another value";
}

inline bool subnormals_are_flushed() {
  volatile double smallest = 0x1p-1022;
  return smallest * 0.5 == 0;
}

struct GlobalState {
  bool grad_mode = c10::GradMode::is_enabled(), flushed = subnormals_are_flushed();
  bool highest = at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
  int threads = at::get_num_threads();
  Tensor random = at::detail::getDefaultCPUGenerator().get_state();

  bool is_same(const GlobalState& other) const {
    return grad_mode == other.grad_mode && flushed == other.flushed && highest == other.highest &&
           threads == other.threads && at::equal(random, other.random);
  }
  void restore() const {
    c10::GradMode::set_enabled(grad_mode);
    at::globalContext().setFlushDenormal(flushed);
    at::globalContext().setFloat32MatmulPrecision("highest");
    at::set_num_threads(threads);
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(random);
  }
};

inline std::string compared(const Run& run, const Case& c) {
  // Softmax minus one-hot cancels in rows that are sure of their target.
  const double least = std::max(1e-4 * std::abs(c.cotangent), 1e-200);
  const double tolerance = c.dtype == at::kDouble ? 1e-11 : 3e-5;
  const Inputs in = made(c, 2), before{in.h.clone(), in.W.clone(), in.targets.clone()};
  const Under exact = forward(definition, c, {in.h.to(at::kDouble), in.W.to(at::kDouble), in.targets});
  const Tensors wanted = backward(exact, c, c.cotangent);

  std::vector<Under> others;
  if (c.crowded) backward(forward(run, c, made(c, 3)), c, 5);
  const Under under = forward(run, c, in);
  const Tensor first_loss = under.loss.detach().clone();
  for (std::uint64_t i = 0; c.crowded && i < 9; ++i) others.push_back(forward(run, c, made(c, 4 + i)));
  const Tensors gradients = backward(under, c, c.cotangent);
  Tensors first;
  for (const Tensor& g : gradients) first.push_back(g.defined() ? g.clone() : g);
  for (const Under& other : others) backward(other, c, 7);

  if (under.loss.scalar_type() != c.dtype) return "loss: another dtype";
  if (under.loss.dim() != 0) return "loss: another shape";
  if (std::string text = difference("loss", under.loss, exact.loss, tolerance, 1e-3); !text.empty()) return text;
  if (gradients.size() != wanted.size()) return "gradients: none";
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (std::string text = difference("gradient", gradients[i], wanted[i], tolerance, least); !text.empty())
      return text;
  const Tensors again = backward(under, c, 2 * c.cotangent);
  for (std::size_t i = 0; i < again.size(); ++i)
    if (std::string text = difference("second backward", again[i], first[i].to(at::kDouble) * 2, tolerance, least);
        !text.empty())
      return text;
  if (!at::equal(in.h, before.h) || !at::equal(in.W, before.W) || !at::equal(in.targets, before.targets))
    return "an input was modified";
  if (under.roots[1].requires_grad() != c.dW || under.roots[0].requires_grad() != c.dh) return "tracking was modified";
  return "";
}

// "" where the form is right on the case.
inline std::string broken(const Form& form, const Case& c) {
  const GlobalState state;
  at::set_num_threads(c.threads);
  const GlobalState before;
  std::string text;
  try {
    text = compared(run_of(form, c), c);
  } catch (const std::exception& error) {
    text = std::string("threw: ") + error.what();
  }
  if (text.empty() && !before.is_same(GlobalState())) text = "global state";
  state.restore();
  return text;
}

}  // namespace cross_entropy_calls
}  // namespace fractus
