// What the device answers at a generic point, what it refuses, and what it notes down.
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <csignal>
#include <functional>
#include <thread>

#include "tests/field/device.h"

namespace fractus {
namespace {

using test::device;
using test::Integer;
using test::Kind;
using test::residues;

at::Tensor of(std::vector<std::int64_t> values, const Kind& kind) {
  return device().tensor_of(at::tensor(values, at::kLong), kind.type);
}

std::vector<bool> truth(const at::Tensor& x) {
  const at::Tensor cpu = x.to(at::kCPU).contiguous();
  return std::vector<bool>(cpu.const_data_ptr<bool>(), cpu.const_data_ptr<bool>() + cpu.numel());
}

// Protects cuts: only a residue of 0 is 0, and every other one lies above each cut and equals no constant but its own.
TEST(FieldRecord, ComparisonsAnswerForAGenericPoint) {
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    const at::Tensor x = of({0, 5, (std::int64_t{1} << kind.bits) - 2}, kind);
    using Truth = std::vector<bool>;
    EXPECT_EQ(truth(x > 0), (Truth{false, true, true}));
    EXPECT_EQ(truth(x > 1e-10), (Truth{false, true, true}));
    EXPECT_EQ(truth(x >= 0), (Truth{true, true, true}));
    EXPECT_EQ(truth(x > -1), (Truth{true, true, true}));
    EXPECT_EQ(truth(x < 0), (Truth{false, false, false}));
    EXPECT_EQ(truth(x < 7), (Truth{true, false, false}));
    EXPECT_EQ(truth(x <= 0), (Truth{true, false, false}));
    EXPECT_EQ(truth(x == 5), (Truth{false, true, false}));
    EXPECT_EQ(truth(x == -1), (Truth{false, false, true}));  // p-1 is -1
    EXPECT_EQ(truth(x != 0), (Truth{false, true, true}));
    EXPECT_EQ(truth(x.logical_not()), (Truth{true, false, false}));
    EXPECT_EQ(truth(x.to(at::kBool)), (Truth{false, true, true}));
    EXPECT_EQ(truth(x.isnan()), (Truth{false, false, false}));
    EXPECT_EQ(truth(x.isinf()), (Truth{false, false, false}));
    EXPECT_EQ(truth(x.isfinite()), (Truth{true, true, true}));
    EXPECT_EQ(truth(x < std::numeric_limits<double>::infinity()), (Truth{true, true, true}));
    const at::Tensor y = of({0, 6, 1}, kind);
    EXPECT_EQ(truth(x == y), (Truth{true, false, false}));
    EXPECT_EQ(truth(x >= y), (Truth{true, true, true}));
    EXPECT_EQ(truth(x > y), (Truth{false, true, true}));
    EXPECT_EQ(truth(x < y), (Truth{false, false, false}));
    EXPECT_EQ(truth(x <= y), (Truth{true, false, false}));
    EXPECT_EQ(truth(x > at::scalar_tensor(0, at::kDouble)), (Truth{false, true, true}));
    EXPECT_TRUE(at::equal(residues(x.abs()), residues(x)));
  }
}

// Protects the reader of a report: each comparison, branch and absolute value with its place, those alike counted.
TEST(FieldRecord, WhatHoldsAtAGenericPointIsNotedWithItsPlace) {
  device().use(61);
  const at::Tensor x = of({1, 2}, {61, at::kDouble});
  device().set_place([] { return "kernel.py:12 in blocks"; });
  device().start(false);
  for (int i = 0; i < 3; ++i) (void)(x > 0.5);
  (void)x.abs();
  (void)(x == x).all().item<bool>();
  const field::Record record = device().finish();
  device().set_place(nullptr);
  const std::string place = "kernel.py:12 in blocks";
  EXPECT_FALSE(record.stop);
  EXPECT_EQ(record.remarks, (std::vector<Remark>{{"comparison", "aten::gt", place, "with 0.5", 3},
                                                 {"comparison", "aten::abs", place, "with 0", 1},
                                                 {"comparison", "aten::eq", place, "of two tensors", 1},
                                                 {"branch", "aten::item", place, "bool", 1}}));
  EXPECT_TRUE(device().finish().remarks.empty());
}

struct Refused {
  const char* operation;
  std::function<void(const at::Tensor&)> run;
  const char* kind = "non-algebraic";
};

// Protects from a verdict on what no field knows: every such operation ends the run and names itself and its place,
// also where the form catches the error and goes on.
TEST(FieldRecord, WhatIsNotAlgebraicEndsTheRunWithItsName) {
  const std::vector<Refused> refused = {
      {"aten::exp", [](auto x) { x.exp(); }},
      {"aten::exp", [](auto x) { x.clone().exp_(); }},
      {"aten::log", [](auto x) { x.log(); }},
      {"aten::sqrt", [](auto x) { x.sqrt(); }},
      {"aten::rsqrt", [](auto x) { x.rsqrt(); }},
      {"aten::sin", [](auto x) { x.sin(); }},
      {"aten::tanh", [](auto x) { x.tanh(); }},
      {"aten::sigmoid", [](auto x) { x.sigmoid(); }},
      {"aten::silu", [](auto x) { at::silu(x); }},
      {"aten::gelu", [](auto x) { at::gelu(x); }},
      {"aten::elu", [](auto x) { at::elu(x); }},
      {"aten::relu", [](auto x) { x.relu(); }},
      {"aten::round", [](auto x) { x.round(); }},
      {"aten::floor", [](auto x) { x.floor(); }},
      {"aten::trunc", [](auto x) { x.trunc(); }},
      {"aten::frexp", [](auto x) { at::frexp(x); }},
      {"aten::clamp", [](auto x) { x.clamp(0, 1); }},
      {"aten::clamp_min", [](auto x) { x.clamp_min(0); }},
      {"aten::maximum", [](auto x) { at::maximum(x, x); }},
      {"aten::minimum", [](auto x) { at::minimum(x, x); }},
      {"aten::max", [](auto x) { x.max(); }},
      {"aten::amax", [](auto x) { x.amax(0); }},
      {"aten::argmax", [](auto x) { x.argmax(); }},
      {"aten::sort", [](auto x) { x.sort(); }},
      {"aten::topk", [](auto x) { x.topk(1); }},
      {"aten::sign", [](auto x) { x.sign(); }},
      {"aten::sgn", [](auto x) { x.sgn(); }},
      {"aten::remainder", [](auto x) { x.remainder(2); }},
      {"aten::fmod", [](auto x) { x.fmod(2); }},
      {"aten::floor_divide", [](auto x) { x.floor_divide(2); }},
      {"aten::div", [](auto x) { x.div(2, "trunc"); }},
      {"aten::pow", [](auto x) { x.pow(0.5); }},
      {"aten::pow", [](auto x) { at::pow(x, x); }},
      {"aten::_softmax", [](auto x) { x.softmax(0); }},
      {"aten::_log_softmax", [](auto x) { x.log_softmax(0); }},
      {"aten::amax", [](auto x) { x.logsumexp(0); }},
      {"aten::std", [](auto x) { x.std(); }},
      {"aten::norm", [](auto x) { x.norm(); }},
      {"aten::native_layer_norm", [](auto x) { at::layer_norm(x, {2}); }},
      {"aten::item", [](auto x) { x[0].item(); }},
      {"aten::_to_copy", [](auto x) { x.to(at::kLong); }},
      {"aten::_to_copy", [](auto x) { x.to(at::kCPU); }},
      {"aten::_to_copy", [](auto x) { at::empty({2}, at::kDouble).copy_(x); }},
      {"aten::_to_copy", [](auto x) { at::zeros({2}, x.options().dtype(at::kLong)).copy_(x); }},
      {"aten::view", [](auto x) { x.view(at::kLong); }},
      {"complex", [](auto x) { x.to(at::kComplexDouble); }},
      {"aten::fill", [](auto x) { at::full_like(x, std::numeric_limits<double>::quiet_NaN()); }},
      {"aten::masked_fill", [](auto x) { x.masked_fill(x > 0, -std::numeric_limits<double>::infinity()); }},
      {"aten::mean", [](auto x) { x.narrow(0, 0, 0).mean(); }},
      {"memory", [](auto x) { at::empty({0}, x.options().dtype(at::kLong)).set_(x.storage()).add(1); }},
      {"aten::uniform", [](auto x) { at::rand_like(x); }, "non-deterministic"},
      {"aten::normal", [](auto x) { at::randn_like(x); }, "non-deterministic"},
      {"aten::bernoulli", [](auto x) { x.bernoulli(); }, "non-deterministic"},
      {"aten::native_dropout", [](auto x) { at::native_dropout(x, 0.5, true); }, "non-deterministic"},
      {"aten::random", [](auto x) { at::randint(5, {3}, x.options().dtype(at::kLong)); }, "non-deterministic"},
  };
  device().use(61);
  device().set_place([] { return "kernel.py:3 in f"; });
  for (const Refused& each : refused) {
    device().start(false);
    const std::string error = test::error_of([&] { each.run(of({1, 2}, {61, at::kDouble})); });
    (void)(of({1, 2}, {61, at::kDouble}) + 1);  // the form went on
    const field::Record record = device().finish();
    EXPECT_NE(error.find(std::string(each.operation) + " at kernel.py:3 in f"), std::string::npos)
        << each.operation << ": " << error;
    ASSERT_EQ(record.stop, FieldStatus::not_algebraic) << each.operation;
    EXPECT_EQ(record.remarks.back().operation, each.operation);
    EXPECT_EQ(record.remarks.back().kind, each.kind) << each.operation;
    EXPECT_EQ(record.remarks.back().place, "kernel.py:3 in f");
  }
  device().set_place(nullptr);
}

// Protects the draw: a division by 0 says nothing of the form, and is told from an operation that has no meaning.
TEST(FieldRecord, ADivisionByZeroIsAPole) {
  const std::vector<std::function<void(const at::Tensor&)>> poles = {[](auto x) { 1 / x; },
                                                                     [](auto x) { x / x; },
                                                                     [](auto x) { x.reciprocal(); },
                                                                     [](auto x) { x / 0; },
                                                                     [](auto x) { x.pow(-2); },
                                                                     [](auto x) { x.div_(x); },
                                                                     [](auto x) { at::addcdiv(x, x, x); },
                                                                     [](auto x) { x.narrow(0, 0, 1).var(); }};
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    for (const auto& pole : poles) {
      device().start(false);
      const std::string error = test::error_of([&] { pole(of({1, 0, 2}, kind)); });
      EXPECT_NE(error.find("drawn again"), std::string::npos) << error;
      EXPECT_EQ(device().finish().stop, FieldStatus::pole);
    }
  }
  // The first event counts.
  device().start(false);
  test::error_of([&] { 1 / of({0}, {61, at::kDouble}); });
  test::error_of([&] { of({1}, {61, at::kDouble}).exp(); });
  EXPECT_EQ(device().finish().stop, FieldStatus::pole);
}

// A kernel that reads memory by itself gets no bit patterns to compute on.
TEST(FieldRecordDeathTest, MemoryThatIsReadDirectlyEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  device().use(61);
  for (const Kind& kind : test::kinds) {
    device().use(kind.bits);
    const at::Tensor x = of({1, 2}, kind);
    EXPECT_EXIT(
        {
          *static_cast<volatile char*>(const_cast<void*>(x.const_data_ptr())) =
              *static_cast<const volatile char*>(x.const_data_ptr());
        },
        testing::KilledBySignal(SIGSEGV), "");
  }
  const at::Tensor whole = at::zeros({2}, at::TensorOptions().dtype(at::kLong).device("field"));
  EXPECT_EXIT({ *whole.mutable_data_ptr<std::int64_t>() = 1; }, testing::KilledBySignal(SIGSEGV), "");
}

// Tensors of one field have no meaning in the other one.
TEST(FieldRecord, ATensorOfTheOtherFieldIsRefused) {
  device().use(31);
  const at::Tensor x = of({1, 2}, {31, at::kDouble});
  device().use(61);
  EXPECT_NE(test::error_of([&] { x + 1; }).find("GF(2^31-1)"), std::string::npos);
  EXPECT_NE(test::error_of([&] { device().residues_of(x); }).find("GF(2^31-1)"), std::string::npos);
}

// The interface names what it was handed.
TEST(FieldRecord, WhatIsNoResidueIsRefused) {
  device().use(31);
  EXPECT_NE(test::error_of([] {
              device().tensor_of(at::tensor({std::int64_t{2147483647}}, at::kLong), at::kFloat);
            }).find("residues from 0"),
            std::string::npos);
  EXPECT_NE(test::error_of([] { device().tensor_of(at::tensor({-1}, at::kLong), at::kFloat); }).find("residues from 0"),
            std::string::npos);
  EXPECT_NE(test::error_of([] { device().residues_of(at::zeros({2})); }).find("of the device 'field'"),
            std::string::npos);
  EXPECT_NE(test::error_of([] { device().use(17); }).find("31 or 61"), std::string::npos);
}

// In a backward that torch does by itself the node is the place, on whatever thread it runs; and what ends the run
// there ends the backward with that error.
TEST(FieldRecord, ABackwardHasItsNodeAsThePlace) {
  device().use(61);
  const at::Tensor x = of({1, 2}, {61, at::kDouble}).requires_grad_();
  device().start(false);
  const auto gradient = torch::autograd::grad({x.abs().sum()}, {x});
  EXPECT_EQ(residues(gradient[0]).sum().item<std::int64_t>(), 2);
  const field::Record record = device().finish();
  ASSERT_EQ(record.remarks.size(), 2u);
  EXPECT_EQ(record.remarks[1], (Remark{"comparison", "aten::sgn", "AbsBackward0", "with 0", 1}));

  struct Bad : torch::autograd::Function<Bad> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list g) {
      return {g[0].exp()};
    }
  };
  device().start(false);
  EXPECT_NE(test::error_of([&] { torch::autograd::grad({Bad::apply(x).sum()}, {x}); }).find("aten::exp"),
            std::string::npos);
  EXPECT_EQ(device().finish().stop, FieldStatus::not_algebraic);
}

// Protects the check that a program treats all blocks alike: the trace has views too, shapes, and nothing of the CPU's
// own work inside an operation.
TEST(FieldRecord, TheTraceHasEachOperationOnce) {
  device().use(61);
  const at::Tensor x = device().tensor_of(at::ones({4, 2}, at::kLong), at::kDouble);
  device().start(/*traced=*/true);
  for (int i = 0; i < 2; ++i) (void)at::mm(x.narrow(0, 2 * i, 2), x.narrow(0, 0, 2));
  const std::vector<Step> trace = device().finish().trace;
  ASSERT_FALSE(trace.empty());
  ASSERT_EQ(trace.size() % 2, 0u);
  const auto half = trace.begin() + static_cast<std::ptrdiff_t>(trace.size() / 2);
  EXPECT_TRUE(std::equal(trace.begin(), half, half, trace.end()));
  EXPECT_EQ(std::count(trace.begin(), trace.end(), (Step{"aten::mm", {{2, 2}}})), 2);
  EXPECT_TRUE(std::count_if(trace.begin(), trace.end(), [](const Step& step) {
                return step.operation == "aten::narrow" || step.operation == "aten::slice";
              }) > 0);
  (void)(x + 1);
  EXPECT_TRUE(device().finish().trace.empty());
}

// Autograd works on threads of its own: remarks that come at once are all counted.
TEST(FieldRecord, ThreadsDoNotLoseRemarks) {
  device().use(61);
  const at::Tensor x = of({1, 2}, {61, at::kDouble});
  device().start(false);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 100; ++k) (void)(x > 0);
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(device().finish().remarks.at(0).count, 400);
}

}  // namespace
}  // namespace fractus
