#include "oracle/matmul_field.h"

namespace fractus::oracle::matmul {
namespace {

struct Outputs {
  template <class R>
  std::vector<Tensor<R>> operator()(const Point<R>& point) const {
    const Tensor<R>&a = *point.inputs[0], &b = *point.inputs[1];
    const auto G = static_cast<std::size_t>(a.shape[0]), M = static_cast<std::size_t>(a.shape[1]),
               K = static_cast<std::size_t>(a.shape[2]), N = static_cast<std::size_t>(b.shape[2]);
    Tensor<R> c{{a.shape[0], a.shape[1], b.shape[2]}, {}};
    for (std::size_t g = 0; g < G; ++g)
      for (std::size_t m = 0; m < M; ++m)
        for (std::size_t n = 0; n < N; ++n) {
          R sum(0);
          for (std::size_t k = 0; k < K; ++k) sum = sum + a.values[(g * M + m) * K + k] * b.values[(g * K + k) * N + n];
          c.values.push_back(sum);
        }
    return {c};
  }
};

// Outputs and, by the tape, gradients.
struct Definition {
  template <class R>
  Values<R> operator()(const Point<R>& point) const {
    return by_tape(Outputs{}, point);
  }
};

}  // namespace

FieldExpected over_field(const FieldCall& call) { return oracle::over_field(Definition{}, call); }
Degrees degrees(const FieldCall& call) { return oracle::degrees(Definition{}, call); }
Expected expected(const FloatCall& call) { return expected_by_tape(Outputs{}, call); }

}  // namespace fractus::oracle::matmul
