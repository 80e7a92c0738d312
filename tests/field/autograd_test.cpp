// torch's own autograd on the device, against the tape of the oracle over the same field: random rational programs.
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "oracle/field.h"
#include "oracle/tape.h"
#include "tests/field/device.h"

namespace fractus {
namespace {

using oracle::Field;
using oracle::Tape;
using oracle::Taped;
using test::device;
using test::residues;

// One program, twice: over tensors of the device, and over single numbers on the tape. All tensors have one shape.
struct Program {
  struct Instruction {
    int operation, a, b, constant;
  };
  std::vector<Instruction> instructions;
};

constexpr int leaves = 3, operations = 8;

Program drawn_program() {
  Program program;
  const auto length = static_cast<int>(test::from_to(1, 14));
  for (int i = 0; i < length; ++i) {
    const auto any = [&] { return static_cast<int>(test::from_to(0, leaves + i)); };
    program.instructions.push_back(
        {static_cast<int>(test::from_to(0, operations)), any(), any(), static_cast<int>(test::from_to(1, 9))});
  }
  return program;
}

at::Tensor step(const Program::Instruction& in, const at::Tensor& a, const at::Tensor& b) {
  switch (in.operation) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a / b;
    case 4: return at::pow(a, 3) + in.constant;
    case 5: return in.constant / a;
    case 6: return at::addcmul(a, b, b, in.constant);
    default: return a * a - b / in.constant;
  }
}

Taped<Field> step(const Program::Instruction& in, const Taped<Field>& a, const Taped<Field>& b) {
  const Taped<Field> c(static_cast<std::int64_t>(in.constant));
  switch (in.operation) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a / b;
    case 4: return a * a * a + c;
    case 5: return c / a;
    case 6: return a + c * b * b;
    default: return a * a - b / c;
  }
}

// Protects gradients: torch's formulas, applied by the device's operations, are those of the tape, bit for bit.
TEST(FieldAutograd, RandomRationalProgramsAgreeWithTheTape) {
  device().use(61);
  EXPECT_TRUE(rc::check("gradients of rational programs", [] {
    const Program program = drawn_program();
    constexpr std::int64_t n = 4;
    std::vector<at::Tensor> values, inputs;
    for (int i = 0; i < leaves; ++i)
      inputs.push_back(
          device().tensor_of(test::drawn_whole({n}, 3, (std::int64_t{1} << 61) - 1), at::kDouble).requires_grad_());
    values = inputs;
    const at::Tensor cotangent = device().tensor_of(test::drawn_residues({n}, 61), at::kDouble);
    std::vector<at::Tensor> gradients;
    device().start(false);
    try {
      for (const auto& in : program.instructions) values.push_back(step(in, values[in.a], values[in.b]));
      gradients = torch::autograd::grad({values.back()}, inputs, {cotangent}, /*retain_graph=*/std::nullopt, false,
                                        /*allow_unused=*/true);
    } catch (const c10::Error&) {
      RC_ASSERT(device().finish().stop == FieldStatus::pole);  // a - a in a denominator, at every point
      RC_DISCARD("a pole");
    }
    for (std::int64_t at = 0; at < n; ++at) {
      Tape<Field> tape;
      Taped<Field>::tape = &tape;
      std::vector<Taped<Field>> numbers;
      for (const at::Tensor& x : inputs)
        numbers.push_back(Taped<Field>::leaf(Field(residues(x.detach())[at].item<std::int64_t>())));
      for (const auto& in : program.instructions) numbers.push_back(step(in, numbers[in.a], numbers[in.b]));
      RC_ASSERT(static_cast<std::int64_t>(numbers.back().value.residue()) ==
                residues(values.back().detach())[at].item<std::int64_t>());
      std::vector<Field> seeds(tape.size(), Field(0));
      if (numbers.back().node != Tape<Field>::constant)
        seeds[numbers.back().node] = Field(residues(cotangent)[at].item<std::int64_t>());
      const std::vector<Field> pulled = tape.pull_back(seeds);
      for (int i = 0; i < leaves; ++i) {
        const std::int64_t got = gradients[i].defined() ? residues(gradients[i])[at].item<std::int64_t>() : 0;
        RC_ASSERT(got == static_cast<std::int64_t>(pulled[numbers[i].node].residue()));
      }
    }
  }));
}

// The derivative of a linear map, by its definition: the map of the transposed, in every operation that autograd takes
// through tensors. <f(x + h) - f(x), g> = <h, f'(g)> holds exactly, in each field.
TEST(FieldAutograd, LinearOperationsHaveTheirAdjoints) {
  test::in_each_kind("adjoints", [](const test::Kind& kind) {
    const std::int64_t rows = test::from_to(1, 5), columns = test::from_to(1, 5);
    const at::Tensor x = test::drawn({rows, columns}, kind).detach().clone().requires_grad_();
    const at::Tensor h = test::drawn({rows, columns}, kind), other = test::drawn({rows, columns}, kind),
                     matrix = test::drawn({columns, 3}, kind);
    const at::Tensor index = test::drawn_whole({4}, 0, rows).to(x.device());
    const at::Tensor mask = test::drawn_whole({rows, columns}, 0, 2).to(at::kBool).to(x.device());
    const std::vector<std::function<at::Tensor(const at::Tensor&)>> maps = {
        [&](const at::Tensor& a) { return a.mm(matrix); },
        [&](const at::Tensor& a) {
          return at::einsum("ij,kj->ik", {a, other});
        },
        [&](const at::Tensor& a) { return a.cumsum(0).flip({1}); },
        [&](const at::Tensor& a) {
          return a.sum(0, true).expand({3, columns});
        },
        [&](const at::Tensor& a) { return a.mean(1) / 3; },
        [&](const at::Tensor& a) { return a.tril() + a.triu(1) * 2; },
        [&](const at::Tensor& a) { return at::where(mask, a, at::zeros({}, a.options())); },
        [&](const at::Tensor& a) { return a.masked_fill(mask, 0); },
        [&](const at::Tensor& a) { return a.index_select(0, index); },
        [&](const at::Tensor& a) { return at::index(a, {index}); },
        [&](const at::Tensor& a) { return at::embedding(a, index); },
        [&](const at::Tensor& a) {
          return a.gather(0, index.unsqueeze(1).expand({4, columns}));
        },
        [&](const at::Tensor& a) { return at::zeros_like(a).index_add(0, index, a.index_select(0, index)); },
        [&](const at::Tensor& a) {
          return at::zeros_like(a).scatter_add(0, index.unsqueeze(1).expand({4, columns}), a.index_select(0, index));
        },
        [&](const at::Tensor& a) { return at::zeros_like(a).index_put({index}, a.index_select(0, index), true); },
        [&](const at::Tensor& a) {
          return at::cat({a, a.t().reshape({rows, columns})}, 0);
        },
        [&](const at::Tensor& a) {
          return at::stack({a, a}, 2).select(2, 1);
        },
        [&](const at::Tensor& a) {
          return at::constant_pad_nd(a, {1, 2});
        },
        [&](const at::Tensor& a) { return a.unfold(0, 1, 1); },
        [&](const at::Tensor& a) { return a.as_strided({rows * columns}, {1}); },
        [&](const at::Tensor& a) {
          return a.as_strided({2, columns}, {0, 1});
        },
        [&](const at::Tensor& a) { return a.diagonal() * 5; },
        [&](const at::Tensor& a) {
          return a.repeat({2, 2}).roll(1, 0);
        },
        [&](const at::Tensor& a) { return a.to(at::kDouble) * 2; },
        [&](const at::Tensor& a) {
          auto b = a.clone();
          b.select(0, 0).mul_(3);
          return b;
        },
        [&](const at::Tensor& a) { return at::lerp(a, a * 2, 5); },
        [&](const at::Tensor& a) {
          return at::baddbmm(at::zeros({1, rows, 3}, a.options()), a.unsqueeze(0), matrix.unsqueeze(0));
        },
        [&](const at::Tensor& a) { return a.prod(0, true).sub(a.prod(0, true)) + a.select(0, 0); },
    };
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const at::Tensor y = maps[i](x), dy = maps[i](x.detach() + h) - y.detach();
      const at::Tensor g = device().tensor_of(test::drawn_residues(y.sizes(), kind.bits), y.scalar_type());
      const at::Tensor dx = torch::autograd::grad({y}, {x}, {g})[0];
      const at::Tensor left = (dy * g).sum(), right = (h * dx).sum();
      RC_LOG() << "map " << i << "\n";
      RC_ASSERT(test::integers(residues(left)) == test::integers(residues(right)));
    }
  });
}

}  // namespace
}  // namespace fractus
