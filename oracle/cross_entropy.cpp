#include "oracle/cross_entropy.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "oracle/companion_dense.h"
#include "oracle/companion_softmax.h"
#include "oracle/cross_entropy_expected.h"
#include "oracle/lattice.h"

namespace fractus::oracle::cross_entropy {
namespace {

struct Call {
  const Array& h;
  const Array& W;
  std::size_t N, d, V;
  std::vector<std::size_t> targets;
};

Call call_of(const Question& question) {
  const std::vector<std::optional<Array>>& inputs = question.borrowed ? *question.borrowed : question.inputs;
  if (inputs.size() < 3 || !inputs[0] || !inputs[1] || !inputs[2])
    throw std::invalid_argument("cross_entropy: h, W and targets are all needed");
  const Array &h = *inputs[0], &W = *inputs[1], &targets = *inputs[2];
  if (h.shape.size() != 2 || W.shape.size() != 2 || h.shape[1] != W.shape[1] || targets.shape != Shape{h.shape[0]} ||
      h.values.empty() || W.values.empty())
    throw std::invalid_argument("cross_entropy: shapes " + to_string(h.shape) + ", " + to_string(W.shape) + " and " +
                                to_string(targets.shape));
  Call call{h,
            W,
            static_cast<std::size_t>(h.shape[0]),
            static_cast<std::size_t>(h.shape[1]),
            static_cast<std::size_t>(W.shape[0]),
            {}};
  for (std::size_t n = 0; n < call.N; ++n) {
    const double target = targets.values[n];
    if (!(target >= 0 && target < static_cast<double>(call.V)))
      throw std::invalid_argument("cross_entropy: target " + std::to_string(target) + " in row " + std::to_string(n));
    call.targets.push_back(static_cast<std::size_t>(target));
  }
  return call;
}

// The sums over the vocabulary, in any order or as declared.
Chain chain_of(const Question& question, std::size_t V) {
  const std::size_t any = V - 1;
  if (question.add_depth <= 0) return {any, std::min<std::size_t>(any, most_rescalings)};
  const std::size_t declared = std::min<std::size_t>(any, static_cast<std::size_t>(question.add_depth));
  return {declared, std::min<std::size_t>(declared, most_rescalings)};
}

// A stored matrix as a tensor. The two may be a gigabyte together and are not copied where the base is double. Its
// errors are enlarged by their own roundings, and infinite where there is no bound.
template <DType judged>
ExpectedTensor tensor(std::string name, const Shape& shape, Stored<judged>&& x) {
  ExpectedTensor result{std::move(name), shape, {}, {}, std::move(x.e)};
  if constexpr (std::is_same_v<Base<judged>, double>) {
    result.value = std::move(x.v);
  } else {
    for (const Base<judged>& v : x.v) {
      result.value.push_back(static_cast<double>(v));
      result.remainder.push_back(static_cast<double>(v - static_cast<Base<judged>>(result.value.back())));
    }
  }
  return result;
}

template <DType judged>
Expected expected_in(const Question& question) {
  using R = Companion<judged>;
  const Call call = call_of(question);
  const Chain chain = chain_of(question, call.V);
  const std::optional<R> g =
      question.cotangent ? std::optional<R>(R(question.cotangent->values.at(0))) : std::optional<R>();

  auto result =
      evaluate<R>(Leaves<judged>{call.h.values.data(), call.N, call.d},
                  Leaves<judged>{call.W.values.data(), call.V, call.d}, call.targets, g, chain, question.threads);
  Expected expected;
  expected.dtype = judged;
  // The base evaluates as a kernel of its own unit roundoff would, and errors grow at least linearly in that: see
  // companion_expected.h. Its own sums over the vocabulary are in any order and never rescaled, so where a shorter
  // chain is declared they may round more often than the tolerance counts (more by this ratio in s, and by less in dh,
  // whose paths are longer by as much on either side).
  const double own = static_cast<double>(call.V) - 1 + library_roundings,
               counted = static_cast<double>(chain.additions) + library_roundings +
                         rescaling_roundings * static_cast<double>(chain.rescalings);
  expected.radius_per_tolerance =
      2 * BaseOf<judged>::unit_roundoff / unit_roundoff(judged) * std::max(1.0, own / counted);

  Stored<judged> loss(1, 1, 1);
  loss.v[0] = result.loss.v;
  // m and e were summed up in double; a relative 2^-30 is far more than those roundings.
  const double tolerance = error(result.loss) * (1 + 0x1p-30);
  loss.e[0] = tolerance < 1e100 ? tolerance : std::numeric_limits<double>::infinity();
  expected.outputs.push_back(tensor("loss", {}, std::move(loss)));
  if (g) {
    expected.gradients.push_back(tensor("dh", call.h.shape, std::move(*result.dh)));
    expected.gradients.push_back(tensor("dW", call.W.shape, std::move(*result.dW)));
    expected.gradients.push_back(std::nullopt);
  }
  return expected;
}

template <int bits>
Dense<Lattice<bits>> lattice(const Array& array) {
  const auto rows = static_cast<std::size_t>(array.shape[0]), columns = static_cast<std::size_t>(array.shape[1]);
  Dense<Lattice<bits>> result(rows, columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) result.set(r, c, Lattice<bits>::input(array.values[r * columns + c]));
  return result;
}

template <int bits>
void fill_up(const Dense<Lattice<bits>>& x, double& fullness) {
  for (std::size_t r = 0; r < x.rows(); ++r)
    for (std::size_t c = 0; c < x.columns(); ++c)
      if (const Lattice<bits>& number = x.get(r, c); number.m > 0)
        fullness = std::max(fullness, std::ldexp(number.m, -bits - number.grid));
}

template <int bits>
std::optional<std::vector<double>> exact_values(const Dense<Lattice<bits>>& x) {
  std::vector<double> values;
  for (std::size_t r = 0; r < x.rows(); ++r)
    for (std::size_t c = 0; c < x.columns(); ++c) {
      if (!is_exact(x.get(r, c))) return std::nullopt;
      values.push_back(x.get(r, c).v);
    }
  return values;
}

template <int bits>
Exactness exactness_in(const Question& question, Probability probability) {
  using R = Lattice<bits>;
  const Call call = call_of(question);
  const Dense<R> h = lattice<bits>(call.h), W = lattice<bits>(call.W);
  const std::optional<R> g =
      question.cotangent ? std::optional<R>(R::input(question.cotangent->values.at(0))) : std::optional<R>();
  const Dense<R> x = times_transposed(h, W, question.threads);
  const FromLogits<R> logits = from_logits<R>(x, call.targets, g, {}, question.threads, probability);

  Exactness result;
  fill_up(x, result.fullness);
  Dense<R> loss(1, 1);
  loss.set(0, 0, logits.loss);
  result.outputs = {exact_values(loss)};
  if (!g) return result;
  const Dense<R> dh = times(*logits.dx, W, 0, question.threads), dW = transposed_times(*logits.dx, h, question.threads);
  for (const Dense<R>* gradient : {&dh, &dW}) {
    fill_up(*gradient, result.fullness);
    result.gradients.push_back(exact_values(*gradient));
  }
  result.gradients.push_back(std::nullopt);
  return result;
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? expected_in<DType::float32>(question)
                                          : expected_in<DType::float64>(question);
}

Exactness exactness(const Question& question, Probability probability) {
  return question.dtype == DType::float32 ? exactness_in<24>(question, probability)
                                          : exactness_in<53>(question, probability);
}

}  // namespace fractus::oracle::cross_entropy
