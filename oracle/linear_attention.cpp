#include "oracle/linear_attention.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>

#include "oracle/companion_expected.h"
#include "oracle/companion_row.h"
#include "oracle/lattice.h"
#include "oracle/linear_attention_expected.h"
#include "oracle/parallel.h"

namespace fractus::oracle::linear_attention {
namespace {

struct Extents {
  std::size_t G, T, D;
};

Extents extents_of(const Question& question) {
  const Shape& shape = question.inputs.at(0)->shape;
  return {static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1]), static_cast<std::size_t>(shape[2])};
}

bool any(const std::vector<std::optional<Array>>& arrays) {
  for (const auto& array : arrays)
    if (array) return true;
  return false;
}

const Array* array_or_null(const std::vector<std::optional<Array>>& arrays, std::size_t i) {
  return i < arrays.size() && arrays[i] ? &*arrays[i] : nullptr;
}

// Rows [first, first + rows) of an array seen as (.., columns); zeros where the array is absent.
template <class R>
Matrix<R> rows_of(const Array* array, std::size_t first, std::size_t rows, std::size_t columns,
                  const std::function<R(double)>& leaf) {
  Matrix<R> matrix = zero_matrix<R>(rows, columns);
  if (array == nullptr) return matrix;
  const double* value = array->values.data() + first * columns;
  for (Row<R>& row : matrix)
    for (std::size_t c = 0; c < columns; ++c) row.set(c, leaf(*value++));
  return matrix;
}

template <class R>
using Leaf = std::function<R(double)>;

// One group of the call in the number type R; leaves[0..4] make the inputs' numbers, leaves[5..7] the cotangents'.
template <class R>
Result<R> evaluate_group(const Question& question, std::size_t g, const std::vector<Leaf<R>>& leaves,
                         const Settle<R>& settle) {
  const auto [G, T, D] = extents_of(question);
  const auto input = [&](std::size_t i, std::size_t rows) {
    return rows_of<R>(array_or_null(question.inputs, i), g * rows, rows, D, leaves[i]);
  };
  const Inputs<R> inputs{input(0, T), input(1, T), input(2, T), input(3, D), input(4, 1)[0]};
  if (!any(question.cotangents)) return evaluate<R>(inputs, nullptr, settle);

  const auto cotangent = [&](std::size_t j, std::size_t rows) {
    return rows_of<R>(array_or_null(question.cotangents, j), g * rows, rows, D, leaves[5 + j]);
  };
  Cotangents<R> cotangents{std::nullopt, cotangent(1, D), cotangent(2, 1)[0]};
  if (array_or_null(question.cotangents, 0) != nullptr) cotangents.y = cotangent(0, T);
  return evaluate<R>(inputs, &cotangents, settle);
}

template <class R>
std::vector<Leaf<R>> same_leaf(const Leaf<R>& leaf) {
  return std::vector<Leaf<R>>(8, leaf);
}

// Rows whose |den| straddles the cut: a y row that is not all zero was divided; an all-zero one was cut, unless the
// numerator may itself be 0, in which case y does not tell and the row has to stand for both.
template <DType judged>
Branch settled_by(const Array* answered_y, std::size_t row, const Row<Companion<judged>>& num) {
  if (answered_y == nullptr || answered_y->values.size() < (row + 1) * num.size()) return Branch::either;
  bool zero_numerator = true;
  for (std::size_t c = 0; c < num.size(); ++c) {
    if (answered_y->values[row * num.size() + c] != 0) return Branch::divide;
    if (magnitude(num.v[c]) > error(num.get(c))) zero_numerator = false;
  }
  return zero_numerator ? Branch::either : Branch::cut;
}

template <DType judged>
void store(const Row<Companion<judged>>& row, ExpectedTensor& tensor, std::size_t first) {
  for (std::size_t c = 0; c < row.size(); ++c) put(row.get(c), tensor, first + c);
}

template <DType judged>
void store(const Matrix<Companion<judged>>& matrix, ExpectedTensor& tensor, std::size_t g) {
  for (std::size_t r = 0; r < matrix.size(); ++r) store(matrix[r], tensor, (g * matrix.size() + r) * matrix[r].size());
}

// KERNELS.md, shared edge: production divides inside `where`, so the gradient of a row that is cut (y is 0 and nothing
// else, m and e too) although its q is not 0 may be NaN there.
template <DType judged>
bool has_shared_edge(const Matrix<Companion<judged>>& y, const double* q) {
  for (std::size_t t = 0; t < y.size(); ++t) {
    const auto is_zero = [](double x) { return x == 0; };
    const std::size_t D = y[t].size();
    if (std::all_of(y[t].m.begin(), y[t].m.end(), is_zero) && std::all_of(y[t].e.begin(), y[t].e.end(), is_zero) &&
        !std::all_of(q + t * D, q + (t + 1) * D, is_zero))
      return true;
  }
  return false;
}

template <DType judged>
Expected expected_in(const Question& question) {
  using R = Companion<judged>;
  const auto [G, T, D] = extents_of(question);
  const Shape tokens = question.inputs[0]->shape;
  const Shape state{tokens[0], tokens[2], tokens[2]}, normaliser{tokens[0], tokens[2]};

  Expected result;
  result.dtype = judged;
  result.radius_per_tolerance = base_radius<judged>;
  result.outputs = {blank<judged>("y", tokens), blank<judged>("S", state), blank<judged>("z", normaliser)};
  const bool backward = any(question.cotangents);
  if (backward)
    result.gradients = {blank<judged>("dq", tokens), blank<judged>("dk", tokens), blank<judged>("dv", tokens),
                        blank<judged>("dS0", state), blank<judged>("dz0", normaliser)};

  const auto leaves = same_leaf<R>([](double x) { return R(x); });
  std::atomic<std::size_t> in_doubt{0};
  std::atomic<bool> shared_edge{false};
  for_each(G, question.threads, [&](std::size_t g) {
    const Result<R> group = evaluate_group<R>(question, g, leaves, [&](std::size_t t, const Row<R>& num) {
      return settled_by<judged>(question.answered_y, g * T + t, num);
    });
    in_doubt += group.rows_in_doubt;
    if (has_shared_edge(group.outputs.y, array_or_null(question.inputs, 0)->values.data() + g * T * D))
      shared_edge = true;
    store(group.outputs.y, result.outputs[0], g);
    store(group.outputs.S, result.outputs[1], g);
    store(group.outputs.z, result.outputs[2], g * D);
    if (!backward) return;
    store(group.gradients->q, *result.gradients[0], g);
    store(group.gradients->k, *result.gradients[1], g);
    store(group.gradients->v, *result.gradients[2], g);
    store(group.gradients->S0, *result.gradients[3], g);
    store(group.gradients->z0, *result.gradients[4], g * D);
  });
  result.choices_in_doubt = in_doubt;
  result.shared_edge = shared_edge;
  return result;
}

// A tensor's exact values while all of it so far is exact; absent from the first number on that some order may round.
struct Collector {
  double& fullness;

  template <int bits>
  void operator()(const Row<Lattice<bits>>& row, std::optional<std::vector<double>>& values) const {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const Lattice<bits> number = row.get(c);
      if (number.m > 0) fullness = std::max(fullness, std::ldexp(number.m, -bits - number.grid));
      if (!is_exact(number))
        values.reset();
      else if (values)
        values->push_back(number.v);
    }
  }
  template <int bits>
  void operator()(const Matrix<Lattice<bits>>& matrix, std::optional<std::vector<double>>& values) const {
    for (const Row<Lattice<bits>>& row : matrix) (*this)(row, values);
  }
};

template <int bits>
Exactness exactness_in(const Question& question) {
  using R = Lattice<bits>;
  const auto leaves = same_leaf<R>([](double x) { return R::input(x); });

  Exactness result;
  result.outputs.assign(3, std::vector<double>());
  const bool backward = any(question.cotangents);
  if (backward) result.gradients.assign(5, std::vector<double>());
  const Collector collect{result.fullness};
  for (std::size_t g = 0; g < extents_of(question).G; ++g) {
    // A den that no order is sure of leaves y and what flows through it uncertified.
    const Result<R> group =
        evaluate_group<R>(question, g, leaves, [](std::size_t, const Row<R>&) { return Branch::cut; });
    const bool y_in_doubt = group.rows_in_doubt > 0;
    if (y_in_doubt) {
      result.outputs[0].reset();
      result.fullness = std::numeric_limits<double>::infinity();
    }
    collect(group.outputs.y, result.outputs[0]);
    collect(group.outputs.S, result.outputs[1]);
    collect(group.outputs.z, result.outputs[2]);
    if (!backward) continue;
    if (y_in_doubt && array_or_null(question.cotangents, 0) != nullptr)
      for (auto& gradient : result.gradients) gradient.reset();
    collect(group.gradients->q, result.gradients[0]);
    collect(group.gradients->k, result.gradients[1]);
    collect(group.gradients->v, result.gradients[2]);
    collect(group.gradients->S0, result.gradients[3]);
    collect(group.gradients->z0, result.gradients[4]);
  }
  return result;
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? expected_in<DType::float32>(question)
                                          : expected_in<DType::float64>(question);
}

Exactness exactness(const Question& question) {
  return question.dtype == DType::float32 ? exactness_in<24>(question) : exactness_in<53>(question);
}

}  // namespace fractus::oracle::linear_attention
