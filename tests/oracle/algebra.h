// Random points of GF(2^61-1), and equality of whole results, for the tests that prove identities.
#pragma once

#include <random>

#include "oracle/field.h"
#include "tests/oracle/draws.h"
#include "tests/oracle/group.h"

namespace fractus::oracle::linear_attention {

// A point: shapes and present tensors as the draw has them, every entry a random residue.
template <class R, class Next>
std::pair<Inputs<R>, Cotangents<R>> point(const Draw& draw, Next next) {
  const auto T = static_cast<std::size_t>(draw.T), D = static_cast<std::size_t>(draw.D);
  const auto matrix = [&](std::size_t rows, bool present) {
    Matrix<R> x = zero_matrix<R>(rows, D);
    for (Row<R>& row : x)
      for (std::size_t c = 0; c < D; ++c)
        if (present) row.set(c, next());
    return x;
  };
  Inputs<R> inputs{matrix(T, true), matrix(T, true), matrix(T, true), matrix(D, draw.S0), matrix(1, draw.z0)[0]};
  Cotangents<R> cotangents{std::nullopt, matrix(D, draw.cotangents & 2), matrix(1, draw.cotangents & 4)[0]};
  if (draw.cotangents & 1) cotangents.y = matrix(T, true);
  return {inputs, cotangents};
}

inline std::pair<Inputs<Field>, Cotangents<Field>> field_point(const Draw& draw) {
  std::mt19937_64 engine(draw.seed);
  return point<Field>(draw, [&] { return Field(static_cast<std::int64_t>(engine() >> 3)); });
}

template <class R>
bool same(const Row<R>& x, const Row<R>& y) {
  if (x.size() != y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(x.get(i) == y.get(i))) return false;
  return true;
}

template <class R>
bool same(const Matrix<R>& x, const Matrix<R>& y) {
  if (x.size() != y.size()) return false;
  for (std::size_t r = 0; r < x.size(); ++r)
    if (!same(x[r], y[r])) return false;
  return true;
}

template <class R>
bool same(const Outputs<R>& x, const Outputs<R>& y) {
  return same(x.y, y.y) && same(x.S, y.S) && same(x.z, y.z);
}

template <class R>
bool same(const Gradients<R>& x, const Gradients<R>& y) {
  return same(x.q, y.q) && same(x.k, y.k) && same(x.v, y.v) && same(x.S0, y.S0) && same(x.z0, y.z0);
}

}  // namespace fractus::oracle::linear_attention
