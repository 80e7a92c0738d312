// Every form of cross_entropy against the definition in plain loops of doubles, on a few dozen small calls: loss and
// gradients, what a call may leave behind, what it refuses, and what it holds.
#include "contracts/cross_entropy.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "contracts/form.h"
#include "harness/worker/allocator.h"
#include "tests/forms/complaint.h"

namespace fractus::cross_entropy {
namespace {

using at::Tensor;

struct Case {
  std::string name;
  std::int64_t rows, width, words;
  double ce_chunk = 2;
  at::ScalarType dtype = at::kDouble;
  void (*adjust)(Tensors& inputs) = nullptr;

  Scalars scalars() const { return {{"ce_chunk", ce_chunk}}; }
};

Tensors made(const Case& c, std::uint64_t seed) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  Tensors inputs{at::randn({c.rows, c.width}, options).to(c.dtype), at::randn({c.words, c.width}, options).to(c.dtype),
                 at::randint(c.words, {c.rows}, at::kLong)};
  if (c.adjust != nullptr) c.adjust(inputs);
  return inputs;
}

void strided(Tensors& inputs) {
  inputs = {inputs[0].t().contiguous().t(),
            inputs[1].repeat({1, 2}).slice(1, 0, at::nullopt, 2).clone().repeat({1, 3}).slice(1, 0, inputs[1].size(1)),
            inputs[2].repeat_interleave(2).slice(0, 0, at::nullopt, 2)};
}

// Every second element of wider rows: no matrix product takes that as it lies.
void sliced(Tensors& inputs) {
  for (Tensor& x : inputs) x = x.repeat_interleave(2, -1).slice(-1, 0, at::nullopt, 2);
}

void one_row_for_all(Tensors& inputs) {
  inputs[0] = inputs[0].narrow(0, 0, 1).expand(inputs[0].sizes());
  inputs[2] = inputs[2].narrow(0, 0, 1).expand(inputs[2].sizes());
}

void targets_at_the_ends(Tensors& inputs) {
  inputs[2].zero_();
  inputs[2].slice(0, 0, at::nullopt, 2).fill_(inputs[1].size(0) - 1);
}

// One logit far above the rest, in the last block of words.
void peaked(Tensors& inputs) { inputs[1][inputs[1].size(0) - 1].mul_(40); }

// Words that no row may take, and whose exponentials are 0.
void masked(Tensors& inputs) {
  inputs[0].select(1, 0).fill_(1);
  inputs[1].slice(0, 0, at::nullopt, 3).select(1, 0).fill_(-1e30);
  inputs[2].fill_(1);
}

void equal_logits(Tensors& inputs) { inputs[1].zero_(); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> made_up;
    for (const double ce_chunk : {0, 1, 2, 6, 7, 8, 1000000})
      made_up.push_back({"chunk_" + std::to_string(static_cast<int>(ce_chunk)), 7, 5, 11, ce_chunk});
    const std::vector<Case> others{
        {"float32", 9, 5, 11, 4, at::kFloat},
        {"one_row", 1, 5, 11, 1},
        {"one_word", 5, 3, 1, 2},
        {"one_column", 5, 1, 4, 2},
        {"many_words", 5, 3, 5000, 2},
        {"many_words_float32", 5, 3, 5000, 2, at::kFloat},
        {"strided", 7, 6, 11, 3, at::kDouble, strided},
        {"sliced", 7, 6, 11, 3, at::kDouble, sliced},
        {"one_row_for_all", 7, 5, 11, 3, at::kDouble, one_row_for_all},
        {"targets_at_the_ends", 7, 5, 5000, 3, at::kDouble, targets_at_the_ends},
        {"peaked", 7, 5, 5000, 3, at::kFloat, peaked},
        {"masked", 7, 5, 5000, 3, at::kFloat, masked},
        {"equal_logits", 7, 5, 5000, 3, at::kFloat, equal_logits},
    };
    made_up.insert(made_up.end(), others.begin(), others.end());
    return made_up;
  }();
  return all;
}

struct Truth {
  double loss = 0;
  Tensor dh, dW;
};

// The definition, and its derivative for the cotangent `g`, one product at a time.
Truth truth(const Tensors& inputs, double g) {
  const Tensor wide_h = inputs[0].to(at::kDouble), wide_W = inputs[1].to(at::kDouble);
  const auto h = wide_h.accessor<double, 2>(), W = wide_W.accessor<double, 2>();
  const auto targets = inputs[2].accessor<std::int64_t, 1>();
  const std::int64_t rows = h.size(0), width = h.size(1), words = W.size(0);
  Truth result{0, at::zeros_like(wide_h, at::MemoryFormat::Contiguous),
               at::zeros_like(wide_W, at::MemoryFormat::Contiguous)};
  auto dh = result.dh.accessor<double, 2>(), dW = result.dW.accessor<double, 2>();
  for (std::int64_t n = 0; n < rows; ++n) {
    std::vector<double> x(static_cast<std::size_t>(words), 0.0);
    for (std::int64_t i = 0; i < words; ++i)
      for (std::int64_t k = 0; k < width; ++k) x[i] += h[n][k] * W[i][k];
    const double a = *std::max_element(x.begin(), x.end());
    double s = 0;
    for (const double logit : x) s += std::exp(logit - a);
    result.loss += (std::log(s) - (x[targets[n]] - a)) / static_cast<double>(rows);
    for (std::int64_t i = 0; i < words; ++i) {
      const double dx = (std::exp(x[i] - a) / s - (i == targets[n] ? 1 : 0)) * g / static_cast<double>(rows);
      for (std::int64_t k = 0; k < width; ++k) dh[n][k] += dx * W[i][k], dW[i][k] += dx * h[n][k];
    }
  }
  return result;
}

struct Graph {
  Tensor loss, h, W;

  // dh and dW, undefined where none was asked for; `again` keeps a graph of the backward itself.
  Tensors gradients(double g, bool again = false) const {
    torch::autograd::variable_list wanted;
    if (h.requires_grad()) wanted.push_back(h);
    if (W.requires_grad()) wanted.push_back(W);
    auto found = torch::autograd::grad({loss}, wanted, {at::full({}, g, loss.options())}, /*retain_graph=*/true, again);
    if (!h.requires_grad()) found.insert(found.begin(), Tensor());
    found.resize(2);
    return found;
  }
};

Graph graph_of(const Form& form, const Case& c, const Tensors& inputs, bool needs_h = true, bool needs_W = true) {
  Graph graph;
  graph.h = inputs[0].detach().requires_grad_(needs_h);
  graph.W = inputs[1].detach().requires_grad_(needs_W);
  graph.loss = form.run({graph.h, graph.W, inputs[2]}, c.scalars(), form.settings)[0];
  return graph;
}

std::string difference(const std::string& what, const Tensor& got, const Tensor& wanted, double tolerance) {
  if (!got.defined() || got.sizes() != wanted.sizes()) return what + ": another shape";
  const double scale = std::max(1e-300, wanted.abs().max().item<double>());
  const double apart = (got.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  return apart <= tolerance * scale ? "" : what + ": another value";  // NaN is another value
}

// "" where the form does all that the contract asks of this call.
std::string broken(const Form& form, const Case& c) {
  const double tolerance = c.dtype == at::kDouble ? 1e-12 : 1e-5, g = -0.7;
  const Tensors inputs = made(c, 2);
  Tensors before;
  for (const Tensor& x : inputs) before.push_back(x.clone());
  const Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
  const Truth wanted = truth(inputs, g);
  const Tensor wanted_loss = at::full({}, wanted.loss, at::kDouble);
  {
    const c10::NoGradGuard no_gradients;
    const Tensors outputs = form.run(inputs, c.scalars(), form.settings);
    if (outputs.size() != 1 || outputs[0].scalar_type() != c.dtype) return "another number or dtype of outputs";
    if (std::string text = difference("loss", outputs[0], wanted_loss, tolerance); !text.empty()) return text;
  }
  const Graph graph = graph_of(form, c, inputs);
  if (std::string text = difference("loss", graph.loss, wanted_loss, tolerance); !text.empty())
    return text + " with gradients";
  const Tensors gradients = graph.gradients(g), again = graph.gradients(-g);
  if (std::string text = difference("dh", gradients[0], wanted.dh, tolerance); !text.empty()) return text;
  if (std::string text = difference("dW", gradients[1], wanted.dW, tolerance); !text.empty()) return text;
  for (const std::size_t i : {0, 1})
    if (!at::equal(gradients[i], -again[i])) return "another gradient in a second backward";
  for (const std::size_t i : {0, 1, 2})
    if (!at::equal(inputs[i], before[i])) return "an input was changed";
  if (!at::equal(random_state, at::detail::getDefaultCPUGenerator().get_state())) return "random numbers were drawn";
  return "";
}

std::vector<const Form*> chosen(bool (*holds)(const Form&)) {
  std::vector<const Form*> found;
  for (const Form& form : forms())
    if (form.kernel == "cross_entropy" && form.role != Role::wrong && holds(form)) found.push_back(&form);
  return found;
}

std::string name_of(const testing::TestParamInfo<const Form*>& info) { return info.param->name; }

struct LossForm : testing::TestWithParam<const Form*> {
  // Fresh memory holds NaN, so an element that nobody wrote shows.
  void SetUp() override { at::globalContext().setDeterministicAlgorithms(true, false); }
  const Form& form() const { return *GetParam(); }
};
struct ChunkedForm : LossForm {};
struct BlockedForm : LossForm {};

INSTANTIATE_TEST_SUITE_P(Forms, LossForm, testing::ValuesIn(chosen([](const Form&) { return true; })), name_of);
INSTANTIATE_TEST_SUITE_P(Forms, ChunkedForm,
                         testing::ValuesIn(chosen([](const Form& f) { return f.role == Role::candidate; })), name_of);
INSTANTIATE_TEST_SUITE_P(Forms, BlockedForm,
                         testing::ValuesIn(chosen([](const Form& f) { return f.settings.contains("block"); })),
                         name_of);

// Protects: loss, both gradients under a cotangent that is not 1, a second backward, inputs and random state.
TEST_P(LossForm, KeepsTheContractOnEveryCase) {
  for (const Case& c : cases()) EXPECT_EQ(broken(form(), c), "") << c.name;
}

// Protects: blocks of words of every length, the last one shorter or not, and in either dtype.
TEST_P(BlockedForm, TakesAnyBlock) {
  Form other = form();
  for (const std::int64_t block : {1, 2, 3, 12, 13, 14, 1000}) {
    other.settings["block"] = block;
    EXPECT_EQ(broken(other, {"", 5, 4, 13, 2}), "") << block;
    EXPECT_EQ(broken(other, {"", 5, 4, 13, 0, at::kFloat}), "") << block;
  }
}

// Known-wrong forms, made of the reference: what `broken` is worth.
Form wrong(std::function<Tensor(const Tensor& x, const Tensor& targets)> loss_of) {
  Form form{.kernel = "cross_entropy", .name = "wrong"};
  form.run = [loss_of = std::move(loss_of)](const Tensors& inputs, const Scalars&, const Settings&) {
    return Tensors{loss_of(at::matmul(inputs[0], inputs[1].t()), inputs[2].unsqueeze(1))};
  };
  return form;
}

TEST(Broken, SeesAFault) {
  const Case& plain = cases().front();
  const auto right = [](const Tensor& x, const Tensor& t) {
    return (x.logsumexp(1) - x.gather(1, t).squeeze(1)).mean();
  };
  EXPECT_EQ(broken(wrong(right), plain), "");
  EXPECT_EQ(broken(wrong([&](const Tensor& x, const Tensor& t) { return right(x, t) * 1.0001; }), plain),
            "loss: another value");
  EXPECT_EQ(broken(wrong([&](const Tensor& x, const Tensor& t) {
                     const Tensor loss = right(x, t);
                     return loss * 1.0001 - loss.detach() * 0.0001;
                   }),
                   plain),
            "dh: another value");
  EXPECT_EQ(broken(wrong([&](const Tensor& x, const Tensor& t) { return right(x, t) + 0 * at::rand({}, x.options()); }),
                   plain),
            "random numbers were drawn");
}

// Logits that are exact with and without a common offset of 3000: h picks a column of W. Then nothing is rounded before
// the largest logit is taken off, and offset or not the same numbers follow.
Tensors exact_logits(double offset, std::int64_t words) {
  at::manual_seed(3);
  const auto options = at::TensorOptions().dtype(at::kFloat);
  return {at::eye(4, options).repeat({2, 1}), at::randint(-64, 64, {words, 4}, options) / 8 + offset,
          at::randint(words, {8}, at::kLong)};
}

Tensors loss_and_dW(const Form& form, const Tensors& inputs) {
  const Graph graph = graph_of(form, {"", 0, 0, 0, 3}, inputs);
  return {graph.loss.detach(), graph.gradients(1)[1]};
}

// exp of the same numbers may differ in its last bit with where they lie in memory (in a whole vector or behind it), so
// that results are held to 2^-20: far above such bits, and far below the spacing of 3000, 2^-12.
bool nearly(const Tensor& a, const Tensor& b) { return at::allclose(a, b, 0x1p-20, 0x1p-20); }

// Protects: the shift by the maximum. log s + a as one number would lose log s to the spacing of 3000.
TEST_P(LossForm, TakesAnOffsetForNothing) {
  for (const double offset : {3000, -3000}) {
    const Tensors plain = loss_and_dW(form(), exact_logits(0, 5000)),
                  shifted = loss_and_dW(form(), exact_logits(offset, 5000));
    EXPECT_TRUE(nearly(plain[0], shifted[0])) << offset;
    EXPECT_TRUE(nearly(plain[1], shifted[1])) << offset;
  }
}

TEST(TakesAnOffsetForNothing, SeesALogSumThatHoldsTheMaximum) {
  const Form lse =
      wrong([](const Tensor& x, const Tensor& t) { return (x.logsumexp(1) - x.gather(1, t).squeeze(1)).mean(); });
  EXPECT_FALSE(nearly(loss_and_dW(lse, exact_logits(0, 5000))[0], loss_and_dW(lse, exact_logits(3000, 5000))[0]));
}

// Protects: a gradient that nobody asked for is not made, and the other one is the same without it.
TEST_P(LossForm, GivesOneGradientAlone) {
  const Case c{"", 7, 5, 11, 3};
  const Tensors inputs = made(c, 4), both = graph_of(form(), c, inputs).gradients(2);
  const Tensors h_alone = graph_of(form(), c, inputs, true, false).gradients(2),
                W_alone = graph_of(form(), c, inputs, false, true).gradients(2);
  EXPECT_TRUE(at::equal(h_alone[0], both[0]));
  EXPECT_TRUE(at::equal(W_alone[1], both[1]));
  EXPECT_FALSE(h_alone[1].defined() || W_alone[0].defined());
  EXPECT_FALSE(graph_of(form(), c, inputs, false, false).loss.requires_grad());

  const Graph graph = graph_of(form(), c, inputs);  // both are recorded, and asked for in turn
  for (const auto& [which, leaf] : {std::pair(0, graph.h), std::pair(0, graph.h), std::pair(1, graph.W)}) {
    const auto found = torch::autograd::grad({graph.loss}, {leaf}, {at::full({}, 2, graph.loss.options())}, true);
    EXPECT_TRUE(at::equal(found[0], both[which]));
  }
}

// Protects: a hand-written backward is no constant. Its gradients may carry a graph, and who goes back through it to an
// input or the cotangent hears of it, where a gradient of 0 would be wrong.
TEST_P(ChunkedForm, SaysThatItIsNotTwiceDifferentiable) {
  const Case c{"", 7, 5, 11, 3};
  const Graph graph = graph_of(form(), c, made(c, 5));
  const Tensors plain = graph.gradients(1), gradients = graph.gradients(1, /*again=*/true);
  EXPECT_TRUE(at::equal(plain[0], gradients[0]) && at::equal(plain[1], gradients[1]));
  const std::string complaint =
      complaint_of<std::exception>([&] { torch::autograd::grad({gradients[0].sum()}, {graph.h}); });
  EXPECT_NE(complaint.find("cannot be differentiated"), std::string::npos) << complaint;
}

// Protects: input outside the domain is refused by name, with what was wanted and what was got.
TEST_P(LossForm, RefusesBadInput) {
  const auto complaint = [&](void (*spoil)(Tensors&), double ce_chunk = 3) {
    Tensors inputs = made({"", 7, 5, 11}, 6);
    spoil(inputs);
    return complaint_of<std::invalid_argument>([&] { form().run(inputs, {{"ce_chunk", ce_chunk}}, form().settings); });
  };
  const auto nothing = [](Tensors&) {};
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(complaint(nothing), "");
  EXPECT_EQ(complaint(nothing, -1), "cross_entropy: ce_chunk: wanted a whole number of 0 or more, got -1");
  EXPECT_EQ(complaint(nothing, 2.5), "cross_entropy: ce_chunk: wanted a whole number of 0 or more, got 2.5");
  EXPECT_EQ(complaint(nothing, inf), "cross_entropy: ce_chunk: wanted a whole number of 0 or more, got inf");
  EXPECT_EQ(complaint([](Tensors& in) { in[2][4] = 11; }),
            "cross_entropy: targets: wanted whole numbers in [0, 11), got 11 in row 4");
  EXPECT_EQ(complaint([](Tensors& in) { in[2][6] = -1; }),
            "cross_entropy: targets: wanted whole numbers in [0, 11), got -1 in row 6");
  EXPECT_EQ(complaint([](Tensors& in) { in[2][0] = ignored_target; }),
            "cross_entropy: targets: wanted whole numbers in [0, 11), got -100 in row 0");
  EXPECT_EQ(complaint([](Tensors& in) { in[0][5][1] = NAN; }),
            "cross_entropy: h: wanted finite values, got nan in row 5");
  EXPECT_EQ(complaint([](Tensors& in) { in[0][3][0] = INFINITY; }),
            "cross_entropy: h: wanted finite values, got inf in row 3");
  EXPECT_EQ(complaint([](Tensors& in) { in[0][3][0] = -INFINITY, in[1].abs_(); }),
            "cross_entropy: h: wanted finite values, got -inf in row 3");
  EXPECT_EQ(complaint([](Tensors& in) { in[1][9][1] = NAN; }),
            "cross_entropy: W: wanted finite values, got nan in row 9");
  EXPECT_EQ(complaint([](Tensors& in) { in[0] = in[0].narrow(0, 0, 0), in[2] = in[2].narrow(0, 0, 0); }),
            "cross_entropy: h: wanted at least one row and one column, got (0, 5)");
  EXPECT_EQ(complaint([](Tensors& in) { in[0] = in[0].narrow(1, 0, 0), in[1] = in[1].narrow(1, 0, 0); }),
            "cross_entropy: h: wanted at least one row and one column, got (7, 0)");
  EXPECT_EQ(complaint([](Tensors& in) { in[1] = in[1].narrow(0, 0, 0); }),
            "cross_entropy: W: wanted at least one row, got (0, 5)");
  EXPECT_NE(complaint([](Tensors& in) { in[2] = in[2].to(at::kInt); }).find("targets: wanted int64"),
            std::string::npos);
}

struct Held {
  std::int64_t forward = 0, backward = 0;  // bytes beside inputs, loss and gradients
};

Held held(const Form& form, const Case& c, bool with_gradients = true) {
  const c10::AutoGradMode mode(with_gradients);
  const Tensors inputs = made(c, 7);
  const Tensor h = inputs[0].detach().requires_grad_(with_gradients),
               W = inputs[1].detach().requires_grad_(with_gradients);
  worker::restart_peak();
  const std::int64_t before = worker::live_bytes();
  Graph graph{form.run({h, W, inputs[2]}, c.scalars(), form.settings)[0], h, W};
  Held result{worker::peak_bytes() - before - static_cast<std::int64_t>(graph.loss.nbytes()), 0};
  if (!with_gradients) return result;
  worker::restart_peak();
  const Tensors gradients = graph.gradients(1);
  result.backward = worker::peak_bytes() - before - static_cast<std::int64_t>(h.nbytes() + W.nbytes());
  return result;
}

struct Memory : LossForm {
  void SetUp() override { worker::install_allocator(); }
};
INSTANTIATE_TEST_SUITE_P(Forms, Memory, testing::ValuesIn(chosen([](const Form&) { return true; })), name_of);

// Protects: nothing of (N,V) is held with ce_chunk > 0, forward or backward. `dense`, and one chunk of all rows, are
// the control: they hold it and are seen to.
TEST_P(Memory, IsFlatInTheRows) {
  const std::int64_t words = 3000, chunk_bytes = 8 * words * 8, all_bytes = 224 * words * 8;
  const auto growth = [&](double ce_chunk, std::int64_t Held::*phase) {
    return held(form(), {"", 256, 4, words, ce_chunk}).*phase - held(form(), {"", 32, 4, words, ce_chunk}).*phase;
  };
  EXPECT_GE(growth(0, &Held::forward), all_bytes);
  for (const auto phase : {&Held::forward, &Held::backward}) {
    if (form().role == Role::candidate) {
      EXPECT_LE(growth(8, phase), chunk_bytes / 4);
    } else {
      EXPECT_GE(growth(8, phase), all_bytes);
    }
  }
}

// Protects: what is declared holds, for strides that a matrix product copies too.
TEST_P(Memory, IsNoMoreThanDeclared) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
    for (const auto adjust : {static_cast<void (*)(Tensors&)>(nullptr), strided, sliced, one_row_for_all})
      for (const double ce_chunk : {0, 1, 8, 100})
        for (const auto& [rows, width, words] : {std::tuple(1, 1, 1), std::tuple(33, 6, 3001), std::tuple(500, 2, 3)}) {
          const Case c{"", rows, width, words, ce_chunk, dtype, adjust};
          const Dims dims = dims_of(contract(), made(c, 7), c.scalars());
          const std::int64_t declared = form().declares.extra_elements(dims, form().settings);
          EXPECT_LE(held(form(), c, false).forward, declared * (dtype == at::kFloat ? 4 : 8))
              << to_string({rows, width, words}) << ' ' << ce_chunk;
        }
}

}  // namespace
}  // namespace fractus::cross_entropy
