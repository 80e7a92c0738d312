// block_ckpt is block_chunked under recompute in backward, and gives its bits: outputs, loss, every gradient, state,
// routing and random-number state; the state advances once; what a graph keeps shrinks.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "harness/worker/allocator.h"
#include "tests/forms/block_calls.h"

namespace fractus {
namespace {

using at::Tensor;
using block_calls::kernel;
using kernel_calls::Case, kernel_calls::Under;

const Form& plain() { return kernel().form("block_chunked"); }
const Form& recomputed() { return kernel().form("block_ckpt"); }

bool same(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    // The sign of a 0 counts.
    if (a[i].defined() && (!at::equal(a[i], b[i]) || !at::equal(a[i].signbit(), b[i].signbit()))) return false;
  }
  return true;
}

// Gradients where `out` or `lb` alone or both have a cotangent, and with inputs frozen.
struct Asked {
  bool out = true, lb = true;
  std::vector<std::string> frozen;
};

struct Result {
  Tensors outputs, gradients;
};

Result run(const Form& form, const Case& c, const Tensors& inputs, const Asked& asked, int backwards = 1,
           bool forward_between = false) {
  Tensors leaves;
  torch::autograd::variable_list wanted;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = kernel().contract->inputs[i];
    const bool frozen = std::find(asked.frozen.begin(), asked.frozen.end(), spec.name) != asked.frozen.end();
    leaves.push_back(inputs[i]);
    if (!inputs[i].defined() || !spec.differentiable || frozen) continue;
    leaves.back() = inputs[i].detach().requires_grad_();
    wanted.push_back(leaves.back());
  }
  Scalars scalars = c.scalars;
  for (const char* whole : {"n_heads", "top_k", "n_steps"}) scalars[whole] = static_cast<double>(c.dims.at(whole));
  Result result{form.run(leaves, scalars, form.settings), {}};
  Tensors kept;
  for (const Tensor& y : result.outputs) kept.push_back(y.detach().clone());
  if (forward_between) form.run(leaves, scalars, form.settings);
  at::manual_seed(5);
  torch::autograd::variable_list roots, seeds;
  for (const std::size_t o : {0, 1})
    if (o == 0 ? asked.out : asked.lb)
      roots.push_back(result.outputs[o]), seeds.push_back(at::randn_like(result.outputs[o]));
  for (int k = 0; k < backwards; ++k)
    result.gradients = torch::autograd::grad(roots, wanted, seeds, /*retain_graph=*/true, false, true);
  EXPECT_TRUE(same(kept,
                   [&] {
                     Tensors now;
                     for (const Tensor& y : result.outputs) now.push_back(y.detach());
                     return now;
                   }()))
      << "the backward changed an output";
  return result;
}

std::string difference(const Result& a, const Result& b) {
  Tensors left, right;
  for (const Tensor& y : a.outputs) left.push_back(y.detach());
  for (const Tensor& y : b.outputs) right.push_back(y.detach());
  return !same(left, right) ? "outputs" : !same(a.gradients, b.gradients) ? "gradients" : "";
}

Case wide() {  // large enough for the products and element-wise loops to be split over threads
  Case c = kernel().named("usual");
  c.dims = {{"B", 2}, {"T", 100}, {"d", 128}, {"L", 2},       {"P", 16},    {"R", 8},
            {"E", 6}, {"F", 192}, {"r", 16},  {"n_heads", 4}, {"top_k", 2}, {"n_steps", 1}};
  c.dtype = at::kFloat;
  c.adjust = [](kernel_calls::Named& in) {
    block_calls::trained(in);
    for (auto& [name, x] : in)
      if (name.starts_with("attn.w") || name.starts_with("moe.U") || name.starts_with("moe.V")) x /= 8;
  };
  return c;
}

// Protects: recompute changes no bit, whichever cotangents come and whichever inputs are frozen.
TEST(Recompute, GivesTheSameBits) {
  at::set_num_threads(1);
  const std::vector<Asked> all{
      {}, {true, false}, {false, true}, {true, true, {"h"}}, {true, true, {"attn.w_qkv", "moe.b1"}}};
  for (const char* name : {"plain", "float32", "dense", "no_carry", "one_token", "ragged", "small_rows", "strided"})
    for (const Asked& asked : all) {
      const Case& c = kernel().named(name);
      const Tensors in = kernel_calls::made(kernel(), c, 3);
      EXPECT_EQ(difference(run(plain(), c, in, asked), run(recomputed(), c, in, asked)), "") << name;
    }
}

// Protects: ... with experts that tie to the bit, where a recompute that routed by its own would choose another.
TEST(Recompute, GivesTheSameBitsAtTies) {
  at::set_num_threads(1);
  Case c = kernel().named("plain");
  c.adjust = block_calls::tied_experts;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      c.dtype = dtype;
      const Tensors in = kernel_calls::made(kernel(), c, seed);
      EXPECT_EQ(difference(run(plain(), c, in, {}), run(recomputed(), c, in, {})), "") << seed;
    }
}

// Protects: ... with more than one thread, a second backward through the graph, and a forward before the backward.
TEST(Recompute, GivesTheSameBitsWithThreadsAndTwice) {
  at::set_num_threads(2);
  const Case c = wide();
  const Tensors in = kernel_calls::made(kernel(), c, 3);
  const Result once = run(plain(), c, in, {});
  EXPECT_EQ(difference(once, run(recomputed(), c, in, {})), "");
  EXPECT_EQ(difference(once, run(recomputed(), c, in, {}, 2, true)), "");
  at::set_num_threads(1);
}

// Protects: the comparison itself. Each of these recomputes something a little different.
TEST(Recompute, SeesAnotherRecompute) {
  const Case& c = kernel().named("plain");
  const Tensors in = kernel_calls::made(kernel(), c, 3);
  for (const char* name : {"wrong_recompute_from_next_state", "wrong_recompute_of_rounded_h",
                           "wrong_recompute_without_balance", "wrong_recompute_of_first_cotangent"}) {
    const Form& form = kernel().form(name);
    Result exact = run(kernel().form("block_plain"), c, in, {});
    Result other = run(form, c, in, {});
    bool differs = false;
    for (std::size_t i = 0; i < exact.gradients.size(); ++i)
      differs =
          differs || !other.gradients[i].defined() || !at::allclose(exact.gradients[i], other.gradients[i], 1e-9, 1e-9);
    EXPECT_TRUE(differs) << name;
  }
  Result a = run(plain(), c, in, {}), b = run(plain(), c, in, {});
  b.gradients[0] = at::where(b.gradients[0] == b.gradients[0].max(), b.gradients[0] * (1 + 0x1p-52), b.gradients[0]);
  EXPECT_EQ(difference(a, b), "gradients");
}

// Protects: the random-number state is that of before, and grad mode too.
TEST(Recompute, LeavesTheRandomStateAlone) {
  const Case& c = kernel().named("plain");
  const Under under = kernel_calls::forward(kernel(), recomputed(), c, kernel_calls::made(kernel(), c, 3));
  const Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  under.gradients(kernel(), c);
  EXPECT_TRUE(at::equal(before, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_TRUE(c10::GradMode::is_enabled());
}

// Protects: a graph keeps the inputs, which are there anyway, and next to nothing beside them. `block_chunked` is the
// control: it keeps many times its output.
TEST(Recompute, KeepsTheInputsAlone) {
  worker::install_allocator();
  const Case c = wide();
  const Tensors in = kernel_calls::made(kernel(), c, 3);
  const auto kept = [&](const Form& form) {
    const std::int64_t before = worker::live_bytes();
    const Under under = kernel_calls::forward(kernel(), form, c, in);
    std::int64_t results = 0;
    for (const Tensor& y : under.outputs) results += static_cast<std::int64_t>(y.nbytes());
    return worker::live_bytes() - before - results;
  };
  kept(recomputed());
  const std::int64_t without = kept(plain()), with = kept(recomputed());
  EXPECT_GT(without, 20 * static_cast<std::int64_t>(in[0].nbytes()));
  EXPECT_LT(with, 4096);
}

}  // namespace
}  // namespace fractus
