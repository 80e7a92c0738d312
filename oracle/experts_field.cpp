#include "oracle/experts_field.h"

#include "oracle/moe.h"

namespace fractus::oracle::experts {
namespace {

template <class R>
struct Identity {
  R value, slope;
};

struct Outputs {
  template <class R>
  std::vector<Tensor<R>> operator()(const Point<R>& point) const {
    const Tensor<R>&h = *point.inputs[0], &weights = *point.inputs[1];
    const Tensor<std::int64_t>& numbers = *point.whole[2];
    const Tensor<R>& W1 = *point.inputs[3];
    const auto N = static_cast<std::size_t>(h.shape[0]), d = static_cast<std::size_t>(h.shape[1]),
               K = static_cast<std::size_t>(weights.shape[1]), E = static_cast<std::size_t>(W1.shape[0]),
               f = static_cast<std::size_t>(W1.shape[2]);
    const auto matrix = [&](std::size_t i, std::size_t e, std::size_t rows, std::size_t columns) {
      Dense<R> result(rows, columns);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c)
          result.set(r, c, point.inputs[i]->values[(e * rows + r) * columns + c]);
      return result;
    };
    const auto expert = [&](std::size_t e) {
      return moe::Expert<R>{{matrix(3, e, d, f), {}, {}, R(1), matrix(4, e, 1, f).row(0)},
                            {matrix(5, e, f, d), {}, {}, R(1), matrix(6, e, 1, d).row(0)}};
    };
    moe::Chosen chosen(N);
    moe::Weights<R> its(N);
    Dense<R> x(N, d);
    for (std::size_t n = 0; n < N; ++n) {
      for (std::size_t c = 0; c < d; ++c) x.set(n, c, h.values[n * d + c]);
      for (std::size_t k = 0; k < K; ++k) {
        chosen[n].push_back(static_cast<std::size_t>(numbers.values[n * K + k]));
        its[n].push_back(weights.values[n * K + k]);
      }
    }
    // One thread: the tape belongs to it.
    const moe::Passes<R> passes = moe::forward<R>(
        expert, E, x, chosen,
        [](const R& y) {
          return Identity<R>{y, R(1)};
        },
        1);
    Tensor<R> out{h.shape, {}};
    for (std::size_t n = 0; n < N; ++n) {
      const Row<R> row = moe::mixed(passes, n, chosen[n], its[n], f);
      for (std::size_t c = 0; c < d; ++c) out.values.push_back(row.get(c));
    }
    return {out};
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

}  // namespace fractus::oracle::experts
