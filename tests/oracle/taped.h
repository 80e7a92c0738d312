// Gradients by the tape: of any form of linear attention, in any number system.
#pragma once

#include "oracle/linear_attention.h"
#include "oracle/tape.h"

namespace fractus::oracle::linear_attention {

// One recording of a form: outputs' nodes are seeded with the cotangents, inputs' nodes are read off.
template <class R, class Run>
Gradients<R> taped_gradients(const Inputs<R>& in, const Cotangents<R>& cotangents, Run run) {
  Tape<R> tape;
  Taped<R>::tape = &tape;
  const auto leaves = [](const Matrix<R>& matrix) {
    Matrix<Taped<R>> result;
    for (const Row<R>& row : matrix) {
      result.emplace_back(row.size());
      for (std::size_t c = 0; c < row.size(); ++c) result.back().set(c, Taped<R>::leaf(row.get(c)));
    }
    return result;
  };
  const Inputs<Taped<R>> inputs{leaves(in.q), leaves(in.k), leaves(in.v), leaves(in.S0), leaves({in.z0})[0]};
  const Outputs<Taped<R>> out = run(inputs);

  std::vector<R> seeds(tape.size(), R(0));
  const auto seed = [&](const Matrix<Taped<R>>& matrix, const Matrix<R>& cotangent) {
    for (std::size_t r = 0; r < matrix.size(); ++r)
      for (std::size_t c = 0; c < matrix[r].size(); ++c)
        if (const std::size_t node = matrix[r].get(c).node; node != Tape<R>::constant)
          seeds[node] = seeds[node] + cotangent[r].get(c);
  };
  if (cotangents.y) seed(out.y, *cotangents.y);
  seed(out.S, cotangents.S);
  seed({out.z}, {cotangents.z});

  const std::vector<R> pulled = tape.pull_back(seeds);
  const auto gradient = [&](const Matrix<Taped<R>>& matrix) {
    Matrix<R> result;
    for (const Row<Taped<R>>& row : matrix) {
      result.emplace_back(row.size());
      for (std::size_t c = 0; c < row.size(); ++c) result.back().set(c, pulled[row.get(c).node]);
    }
    return result;
  };
  Taped<R>::tape = nullptr;
  return {gradient(inputs.q), gradient(inputs.k), gradient(inputs.v), gradient(inputs.S0), gradient({inputs.z0})[0]};
}

}  // namespace fractus::oracle::linear_attention
