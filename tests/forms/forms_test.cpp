// Every form of linear_attention against `looped` in float64, on a few dozen small calls: right forms agree on all of
// them, each wrong form differs on at least one. `looped` itself is held against the definition in plain loops.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <map>

#include "contracts/form.h"
#include "contracts/linear_attention.h"

namespace fractus {
namespace {

using at::Tensor;

const std::vector<std::string> input_names{"q", "k", "v", "S0", "z0"}, output_names{"y", "S", "z"};

struct Case {
  std::string name;
  std::int64_t groups, tokens, width;
  bool has_S0 = true, has_z0 = true;
  at::ScalarType dtype = at::kDouble;
  void (*adjust)(Tensors& inputs) = nullptr;
};

// Keys, queries and z0 from 0.1 to 1.1, as feature maps give them; values and S0 of either sign.
Tensors made(const Case& c, std::uint64_t seed) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const auto tokens = [&] { return at::rand({c.groups, c.tokens, c.width}, options); };
  Tensors inputs{tokens() + 0.1, tokens() + 0.1, tokens() - 0.5, {}, {}};
  if (c.has_S0) inputs[3] = at::rand({c.groups, c.width, c.width}, options) - 0.5;
  if (c.has_z0) inputs[4] = at::rand({c.groups, c.width}, options) + 0.1;
  for (Tensor& x : inputs)
    if (x.defined()) x = x.to(c.dtype);
  if (c.adjust != nullptr) c.adjust(inputs);
  return inputs;
}

// (T,G,D) seen as (G,T,D); a window into something larger; one group seen by all.
Tensor transposed(const Tensor& x) { return x.transpose(0, 1).contiguous().transpose(0, 1); }
Tensor window(const Tensor& x) {
  return at::cat({x, x + 1}, 1).repeat({1, 1, 2}).slice(1, 0, x.size(1)).slice(2, 0, at::nullopt, 2);
}
Tensor expanded(const Tensor& x) { return x.narrow(0, 0, 1).expand(x.sizes()); }

void strided(Tensors& inputs) {
  inputs = {transposed(inputs[0]), transposed(inputs[1]), window(inputs[2]), inputs[3].mT(), expanded(inputs[4])};
}

void stride_zero(Tensors& inputs) {
  inputs = {expanded(inputs[0]), window(inputs[1]), expanded(inputs[2]), expanded(inputs[3]), inputs[4]};
}

void negative_denominators(Tensors& inputs) { inputs[0].slice(1, 0, at::nullopt, 2).neg_(); }

void zero_queries(Tensors& inputs) { inputs[0].slice(1, 0, at::nullopt, 3).zero_(); }

// den = 0 below a numerator of order 1 in the first rows: no key yet, but a state.
void numerators_without_denominators(Tensors& inputs) {
  inputs[1].slice(1, 0, 3).zero_();
  inputs[3].add_(2);
}

// One product a denominator, from 0.9e-10 over 2e-10 to 5e-9, and of either sign: just above the cut and just below.
void near_the_cut(Tensors& inputs) {
  inputs[0].zero_().select(2, 0).fill_(0x1p-17);
  const Tensor steps = at::arange(inputs[0].size(1), inputs[0].options()) * 0.4;
  inputs[1].select(2, 0).copy_((steps.exp() * 0.9e-10 / 0x1p-17).expand({inputs[0].size(0), -1}));
  inputs[0].slice(1, 0, at::nullopt, 2).neg_();
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> made_up;
    for (const std::int64_t tokens : {1, 5, 63, 64, 65, 130}) {
      const std::string name = "T" + std::to_string(tokens);
      made_up.push_back({name, 3, tokens, 4});
      made_up.push_back({name + "_without_carry", 2, tokens, 5, false, false});
      made_up.push_back({name + "_strided", 3, tokens, 4, true, true, at::kDouble, strided});
    }
    const std::vector<Case> others{
        {"S0_alone", 9, 65, 3, true, false},
        {"z0_alone", 1, 70, 3, false, true},
        {"one_by_one", 1, 1, 1},
        {"wide", 2, 128, 33},
        {"stride_zero", 4, 66, 4, true, true, at::kDouble, stride_zero},
        {"four_blocks", 2, 256, 4},
        {"float32", 3, 66, 4, true, true, at::kFloat},
        {"negative_denominators", 2, 9, 4, true, true, at::kDouble, negative_denominators},
        {"zero_queries", 2, 70, 4, true, true, at::kDouble, zero_queries},
        {"zero_queries_float32", 2, 7, 4, true, true, at::kFloat, zero_queries},
        {"numerators_alone", 2, 7, 4, true, false, at::kDouble, numerators_without_denominators},
        {"numerators_alone_float32", 2, 7, 4, true, false, at::kFloat, numerators_without_denominators},
        {"near_the_cut_1", 1, 1, 4, false, false, at::kDouble, near_the_cut},
        {"near_the_cut", 2, 12, 4, false, false, at::kDouble, near_the_cut},
        {"no_tokens", 2, 0, 4},
        {"no_tokens_without_carry", 2, 0, 4, false, false},
        {"no_groups", 0, 5, 4},
    };
    made_up.insert(made_up.end(), others.begin(), others.end());
    return made_up;
  }();
  return all;
}

const Form& looped() { return *find_form("linear_attention", "looped"); }

Tensors copies(const Tensors& tensors, at::ScalarType dtype) {
  Tensors result;
  for (const Tensor& x : tensors) result.push_back(x.defined() ? x.to(dtype, false, true) : x);
  return result;
}

struct Graph {
  Tensors outputs, leaves, cotangents;

  // In the inputs' order, zeros where the graph does not reach, undefined for an absent input.
  Tensors gradients() const {
    torch::autograd::variable_list roots, seeds, wanted;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].requires_grad())
        roots.push_back(outputs[i]), seeds.push_back(cotangents[i].to(outputs[i].scalar_type()));
    for (const Tensor& leaf : leaves)
      if (leaf.defined()) wanted.push_back(leaf);
    if (roots.empty()) roots.push_back(wanted[0].sum() * 0), seeds.push_back(at::ones_like(roots[0]));
    const auto reached =
        torch::autograd::grad(roots, wanted, seeds, /*retain_graph=*/true, false, /*allow_unused=*/true);
    Tensors result;
    std::size_t next = 0;
    for (const Tensor& leaf : leaves) {
      if (!leaf.defined())
        result.emplace_back();
      else if (const Tensor& found = reached[next++]; found.defined())
        result.push_back(found);
      else
        result.push_back(at::zeros_like(leaf));
    }
    return result;
  }
};

// The inputs keep their strides: a leaf may be a view's alias.
Graph graph_of(const Form& form, const Tensors& inputs) {
  Graph graph;
  for (const Tensor& x : inputs) graph.leaves.push_back(x.defined() ? x.detach().requires_grad_() : x);
  graph.outputs = form.run(graph.leaves, {}, form.settings);
  at::manual_seed(7);
  for (const Tensor& x : graph.outputs) graph.cotangents.push_back(at::randn(x.sizes(), at::kDouble));
  return graph;
}

std::string difference(const std::string& what, const Tensor& got, const Tensor& wanted, double tolerance) {
  if (!wanted.defined() && !got.defined()) return "";
  if (got.sizes() != wanted.sizes()) return what + ": another shape";
  if (wanted.numel() == 0) return "";
  const Tensor expected = wanted.detach().to(at::kDouble);
  const double scale = std::max(1.0, expected.abs().max().item<double>());  // dq of a lone token is what rounding left
  const Tensor apart = (got.detach().to(at::kDouble) - expected).abs();
  return (apart <= tolerance * scale).all().item<bool>() ? "" : what + ": another value";
}

std::string first_difference(const std::vector<std::string>& names, const Tensors& got, const Tensors& wanted,
                             double tolerance) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::string text = difference(names[i], got[i], wanted[i], tolerance); !text.empty()) return text;
  return "";
}

bool share_memory(const Tensor& a, const Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

std::string shared_memory(const Tensors& outputs, const Tensors& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < inputs.size(); ++j)
      if (inputs[j].defined() && share_memory(outputs[i], inputs[j]))
        return output_names[i] + " aliases " + input_names[j];
    for (std::size_t j = 0; j < i; ++j)
      if (share_memory(outputs[i], outputs[j])) return output_names[i] + " aliases " + output_names[j];
  }
  return "";
}

struct Expected {
  Tensors outputs, gradients;
};

const Expected& expected(const Case& c) {
  static std::map<std::string, Expected> known;
  const auto [entry, is_new] = known.try_emplace(c.name);
  if (is_new) {
    const c10::AutoGradMode gradients(true);  // also where the caller wants none
    const Graph graph = graph_of(looped(), copies(made(c, 2), at::kDouble));
    entry->second = {graph.outputs, graph.gradients()};
  }
  return entry->second;
}

std::string broken_without_gradients(const Form& form, const Case& c, double tolerance) {
  const c10::NoGradGuard no_gradients;
  form.run(made(c, 1), {}, form.settings);  // other values first, for a form that remembers
  const Tensors inputs = made(c, 2), before = copies(inputs, c.dtype);
  const Tensor random_state = at::detail::getDefaultCPUGenerator().get_state();
  const Tensors outputs = form.run(inputs, {}, form.settings);
  if (!at::equal(random_state, at::detail::getDefaultCPUGenerator().get_state())) return "random numbers were drawn";
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && !at::equal(inputs[i], before[i])) return input_names[i] + " was modified";
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].scalar_type() != c.dtype) return output_names[i] + ": another dtype";
  if (std::string text = shared_memory(outputs, inputs); !text.empty()) return text;
  const Tensors again = form.run(inputs, {}, form.settings);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!at::equal(outputs[i], again[i])) return output_names[i] + ": other bits the second time";
  return first_difference(output_names, outputs, expected(c).outputs, tolerance);
}

std::string broken_with_gradients(const Form& form, const Case& c, double tolerance) {
  graph_of(form, made(c, 1));
  const Tensors inputs = made(c, 2);
  const Graph graph = graph_of(form, inputs);
  if (std::string text = first_difference(output_names, graph.outputs, expected(c).outputs, tolerance); !text.empty())
    return text + " with gradients";
  const Tensors gradients = graph.gradients();
  if (std::string text = first_difference(input_names, gradients, expected(c).gradients, tolerance); !text.empty())
    return "d" + text;
  std::string text = first_difference(input_names, graph.gradients(), gradients, 0);
  return text.empty() ? "" : "second backward: d" + text;
}

// "" where the form does all that the contract asks of this call.
std::string broken(const Form& form, const Case& c) {
  const double tolerance = c.dtype == at::kDouble ? 1e-11 : 1e-5;
  std::string text = broken_without_gradients(form, c, tolerance);
  return text.empty() ? broken_with_gradients(form, c, tolerance) : text;
}

std::vector<const Form*> forms_where(const std::function<bool(const Form&)>& holds) {
  std::vector<const Form*> chosen;
  for (const Form& form : forms())
    if (holds(form)) chosen.push_back(&form);
  return chosen;
}

const std::string crashing = "wrong_crashes_at_prime_groups";  // has a test of its own

bool is_right(const Form& form) { return form.kernel == "linear_attention" && form.role != Role::wrong; }
bool is_right_in_blocks(const Form& form) { return is_right(form) && form.settings.contains("block"); }

struct FormTest : testing::TestWithParam<const Form*> {
  // Fresh memory holds NaN, so an element that nobody wrote shows.
  void SetUp() override { at::globalContext().setDeterministicAlgorithms(true, false); }
  const Form& form() const { return *GetParam(); }
};

std::string name_of(const testing::TestParamInfo<const Form*>& info) { return info.param->name; }

struct RightForm : FormTest {};
struct BlockForm : FormTest {};

// Protects: the form that was asked for is the one that is judged. A second file under a taken name, a kernel that does
// not exist, a name that is a path: none is kept, and each complaint names its file.
TEST(Registration, RefusesWhatItCannotKeepApart) {
  const std::size_t kept = forms().size(), refused = refused_registrations().size();
  const Form taken = *find_form("linear_attention", "chunked");
  Form foreign = taken, path = taken, empty = taken;
  foreign.name = "foreign", foreign.kernel = "no_such_kernel";
  path.name = "../evil";
  empty.name = "nothing_to_run", empty.run = nullptr;
  Form odd_setting = taken, no_block = taken;
  odd_setting.name = "odd_setting", odd_setting.settings = {{"a,b", 1}};
  no_block.name = "no_block", no_block.settings = {{"block", 0}};
  for (const Form& form : {taken, foreign, path, empty, odd_setting, no_block}) Registration{form};
  EXPECT_EQ(forms().size(), kept);
  ASSERT_EQ(refused_registrations().size(), refused + 6);
  for (std::size_t i = refused; i < refused + 6; ++i)
    EXPECT_NE(refused_registrations()[i].find("forms_test.cpp"), std::string::npos) << refused_registrations()[i];
  EXPECT_NE(refused_registrations()[refused].find("chunked.cpp"), std::string::npos);
}

TEST_P(RightForm, KeepsTheContractOnEveryCase) {
  for (const Case& c : cases()) EXPECT_EQ(broken(form(), c), "") << c.name;
}

TEST_P(BlockForm, TakesAnyBlock) {
  Form other = form();
  for (const std::int64_t block : {1, 2, 13, 1000}) {
    other.settings["block"] = block;
    EXPECT_EQ(broken(other, {"any_block", 2, 26, 3}), "") << block;
  }
}

TEST_P(RightForm, PassesNoGradientThroughACutRow) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Case c{"", 2, 70, 4, true, false, dtype, [](Tensors& inputs) {
                   inputs[1].zero_();  // den = 0 everywhere, the numerator q S0 is not
                 }};
    const Tensors inputs = made(c, 3);
    Graph graph = graph_of(form(), inputs);
    EXPECT_TRUE(at::equal(graph.outputs[0], at::zeros_like(inputs[0])));
    graph.cotangents = {at::ones_like(inputs[0]), at::zeros_like(graph.outputs[1]), at::zeros_like(graph.outputs[2])};
    const Tensors gradients = graph.gradients();
    for (const std::size_t i : {0, 1, 2, 3}) EXPECT_TRUE(at::equal(gradients[i], at::zeros_like(inputs[i]))) << i;
  }
}

TEST_P(RightForm, ReturnsTheCarryWhereThereAreNoTokens) {
  const Tensors inputs = made({"", 2, 0, 4}, 4);
  const Graph graph = graph_of(form(), inputs);
  EXPECT_EQ(graph.outputs[0].sizes(), at::IntArrayRef({2, 0, 4}));
  EXPECT_TRUE(at::equal(graph.outputs[1], inputs[3]) && at::equal(graph.outputs[2], inputs[4]));
  const Tensors gradients = graph.gradients();
  EXPECT_EQ(difference("dS0", gradients[3], graph.cotangents[1], 0), "");
  EXPECT_EQ(difference("dz0", gradients[4], graph.cotangents[2], 0), "");
}

TEST_P(RightForm, NamesTheTensorThatDoesNotFit) {
  const auto complaint = [&](std::size_t which, const Tensor& replacement) -> std::string {
    Tensors inputs = made({"", 2, 5, 4}, 5);
    inputs[which] = replacement;
    try {
      form().run(inputs, {}, form().settings);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint(0, {}).find(": q is missing"), std::string::npos);
  EXPECT_NE(complaint(1, at::ones({2, 6, 4}, at::kDouble)).find(": k: "), std::string::npos);
  EXPECT_NE(complaint(2, at::ones({2, 5, 4}, at::kFloat)).find(": v: "), std::string::npos);
  EXPECT_NE(complaint(3, at::ones({2, 4}, at::kDouble)).find(": S0: "), std::string::npos);
  EXPECT_NE(complaint(4, at::ones({1, 4}, at::kDouble)).find(": z0: "), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Forms, RightForm, testing::ValuesIn(forms_where(is_right)), name_of);
INSTANTIATE_TEST_SUITE_P(Forms, BlockForm, testing::ValuesIn(forms_where(is_right_in_blocks)), name_of);

// No case has a prime above 4 groups, so this form also shows that what the wrong ones are made of is right.
TEST(WrongFormDeathTest, CrashesAtPrimeGroupsAlone) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Form& form = *find_form("linear_attention", crashing);
  for (const Case& c : cases()) EXPECT_EQ(broken(form, c), "") << c.name;
  EXPECT_EXIT(form.run(made({"", 5, 5, 3}, 1), {}, form.settings), testing::KilledBySignal(SIGSEGV), "");
}

TEST(Looped, IsTheDefinition) {
  const Case c{"", 2, 7, 3, true, true, at::kDouble, zero_queries};
  const Tensors inputs = made(c, 6), outputs = looped().run(inputs, {}, {});
  const auto q = inputs[0].accessor<double, 3>(), k = inputs[1].accessor<double, 3>(),
             v = inputs[2].accessor<double, 3>();
  const auto y = outputs[0].accessor<double, 3>();
  Tensor state = inputs[3].clone(), key_sum = inputs[4].clone();
  auto S = state.accessor<double, 3>();
  auto z = key_sum.accessor<double, 2>();
  for (std::int64_t g = 0; g < c.groups; ++g)
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      double denominator = 0;
      for (std::int64_t i = 0; i < c.width; ++i) {
        z[g][i] += k[g][t][i];
        denominator += q[g][t][i] * z[g][i];
        for (std::int64_t j = 0; j < c.width; ++j) S[g][i][j] += k[g][t][i] * v[g][t][j];
      }
      for (std::int64_t j = 0; j < c.width; ++j) {
        double numerator = 0;
        for (std::int64_t i = 0; i < c.width; ++i) numerator += q[g][t][i] * S[g][i][j];
        const double wanted = std::abs(denominator) > 1e-10 ? numerator / (denominator + 1e-20) : 0;
        EXPECT_NEAR(y[g][t][j], wanted, 1e-13) << g << ' ' << t << ' ' << j;
      }
    }
  EXPECT_EQ(difference("S", outputs[1], state, 1e-14), "");
  EXPECT_EQ(difference("z", outputs[2], key_sum, 1e-14), "");
}

}  // namespace
}  // namespace fractus
