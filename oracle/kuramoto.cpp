#include "oracle/kuramoto.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "oracle/kuramoto_expected.h"
#include "oracle/kuramoto_token.h"
#include "oracle/parallel.h"

namespace fractus::oracle::kuramoto {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Call {
  const Array &hidden, &omega, &U, &lambda;
  std::size_t tokens, d, P, r, n_steps;
};

Call call_of(const Question& question) {
  if (question.inputs.size() != 4 ||
      !std::all_of(question.inputs.begin(), question.inputs.end(), [](const auto& input) { return input.has_value(); }))
    throw std::invalid_argument("kuramoto: hidden, omega, coupling_u and coupling_lambda are all needed");
  const Array &hidden = *question.inputs[0], &omega = *question.inputs[1], &U = *question.inputs[2],
              &lambda = *question.inputs[3];
  if (hidden.shape.size() != 3 || hidden.shape[2] == 0 || omega.shape.size() != 1 || omega.values.empty() ||
      lambda.shape.size() != 1 || lambda.values.empty() || U.shape != Shape{omega.shape[0], lambda.shape[0]})
    throw std::invalid_argument("kuramoto: shapes " + to_string(hidden.shape) + ", " + to_string(omega.shape) + ", " +
                                to_string(U.shape) + " and " + to_string(lambda.shape));
  if (question.n_steps < 0) throw std::invalid_argument("kuramoto: n_steps " + std::to_string(question.n_steps));
  return {hidden,
          omega,
          U,
          lambda,
          static_cast<std::size_t>(hidden.shape[0] * hidden.shape[1]),
          static_cast<std::size_t>(hidden.shape[2]),
          omega.values.size(),
          lambda.values.size(),
          static_cast<std::size_t>(question.n_steps)};
}

template <DType judged>
Row<Companion<judged>> leaves(const double* values, std::size_t count) {
  Row<Companion<judged>> row(count);
  for (std::size_t i = 0; i < count; ++i) row.set(i, Companion<judged>(values[i]));
  return row;
}

template <DType judged>
struct Token {
  bool lost = false;                // no bound at all
  std::vector<std::size_t> chosen;  // the branches that its gradients cover: one, or all
  std::vector<Branch<judged>> branches;
};

void put(ExpectedTensor& tensor, std::size_t i, const Placed& one) {
  tensor.value[i] = one.value;
  if (!tensor.remainder.empty()) tensor.remainder[i] = one.remainder;
  tensor.tolerance[i] = one.tolerance;
}

template <DType judged>
void put(ExpectedTensor& tensor, std::size_t i, const Companion<judged>& x) {
  const double value = static_cast<double>(x.v);
  // m and e were themselves summed in double; a relative 2^-30 is far more than those roundings.
  const double tolerance = error(x) * (1 + 0x1p-30);
  put(tensor, i,
      {value, static_cast<double>(x.v - static_cast<Base<judged>>(value)), tolerance < 1e100 ? tolerance : infinity});
}

ExpectedTensor blank(const std::string& name, Shape shape, DType dtype) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {name, std::move(shape), std::vector<double>(count), std::vector<double>(dtype == DType::float64 ? count : 0),
          std::vector<double>(count)};
}

// Elements of a token's gradients that all tokens share, one after the other.
template <DType judged>
std::vector<Companion<judged>> shared(const Gradients<Companion<judged>>& gradients) {
  std::vector<Companion<judged>> all;
  const auto take = [&](const Row<Companion<judged>>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) all.push_back(row.get(i));
  };
  take(gradients.omega);
  for (const auto& row : gradients.U) take(row);
  take(gradients.lambda);
  return all;
}

template <DType judged>
Companion<judged> without_bound() {
  return {Base<judged>(0), 0, 0, unbounded, 0};
}

// What a token gives to the gradients: 2 pi mean(hidden) first, then what is shared.
template <DType judged>
std::vector<Companion<judged>> gradients_of(const Call& call, const Network<Companion<judged>>& network,
                                            const Origin<judged>& origin, const Token<judged>& token,
                                            const double* cotangent) {
  if (token.lost) return std::vector<Companion<judged>>(1 + call.P + call.P * call.r + call.r, without_bound<judged>());
  std::vector<Companion<judged>> result;
  for (const std::size_t i : token.chosen) {
    const auto gradients = adjoint(network, origin, call.n_steps, token.branches[i], leaves<judged>(cotangent, call.P));
    std::vector<Companion<judged>> all = shared(gradients);
    all.insert(all.begin(), gradients.angle);
    if (result.empty())
      result = std::move(all);
    else
      for (std::size_t k = 0; k < all.size(); ++k) result[k] = hull(result[k], all[k]);
  }
  return result;
}

template <DType judged>
Expected expected_in(const Question& question) {
  using R = Companion<judged>;
  const Call call = call_of(question);
  const Array* got = question.answered_theta;
  const Network<R> network =
      network_of<judged>({call.omega.values.data(), call.U.values.data(), call.lambda.values.data(), call.P, call.r},
                         question.dt, question.damping);

  Expected result;
  result.dtype = judged;
  // The base evaluates as a kernel of its own unit roundoff would, and errors grow at least linearly in that: see
  // linear_attention.cpp.
  result.radius_per_tolerance = 2 * BaseOf<judged>::unit_roundoff / unit_roundoff(judged);
  const Shape& tokens = call.hidden.shape;
  result.outputs = {blank("theta", {tokens[0], tokens[1], static_cast<std::int64_t>(call.P)}, judged)};
  if (got != nullptr && got->values.size() != call.tokens * call.P) got = nullptr;
  const bool backward = question.cotangent.has_value();
  if (backward)
    result.gradients = {blank("dhidden", call.hidden.shape, judged), blank("domega", call.omega.shape, judged),
                        blank("dcoupling_u", call.U.shape, judged),
                        blank("dcoupling_lambda", call.lambda.shape, judged)};

  struct Doubt {
    bool any = false, flipped = false;
    double moves = 0;
  };
  std::vector<Doubt> doubts(call.tokens);
  std::vector<std::vector<R>> gradients(backward ? call.tokens : 0);
  for_each(call.tokens, question.threads, [&](std::size_t t) {
    const Origin<judged> origin = origin_of(mean_of(leaves<judged>(call.hidden.values.data() + t * call.d, call.d)));
    const double* theta = got == nullptr ? nullptr : got->values.data() + t * call.P;
    Token<judged> token{.branches = branches(network, origin, call.n_steps)};
    token.lost = token.branches.empty();
    Doubt& doubt = doubts[t];
    doubt.any = token.branches.size() != 1;
    for (std::size_t i = 1; i < token.branches.size(); ++i)
      doubt.moves = std::max(doubt.moves, moved_by_flip(token.branches[0], token.branches[i]));
    const std::size_t own = token.lost || theta == nullptr ? 0 : nearest(token.branches, theta);
    doubt.flipped = own != 0;
    for (std::size_t p = 0; p < call.P; ++p) {
      Placed one{.tolerance = infinity};
      if (!token.lost)
        one = placed(token.branches[own].theta.get(p), token.branches[own].common,
                     theta == nullptr ? std::nullopt : std::optional(theta[p]));
      doubt.any = doubt.any || one.in_doubt;
      if (theta == nullptr && (one.in_doubt || token.branches.size() > 1)) one.tolerance = infinity;
      put(result.outputs[0], t * call.P + p, one);
    }
    if (!backward) return;
    for (std::size_t i = 0; i < token.branches.size(); ++i)
      if (theta == nullptr || i == own) token.chosen.push_back(i);
    gradients[t] = gradients_of(call, network, origin, token, question.cotangent->values.data() + t * call.P);
    // Every element of hidden moves the angle by 2 pi / d of itself.
    const R of_element = full_turn<judged>() * gradients[t].front() / R(static_cast<double>(call.d));
    for (std::size_t i = 0; i < call.d; ++i) put(*result.gradients[0], t * call.d + i, of_element);
  });
  for (const Doubt& doubt : doubts) {
    result.choices_in_doubt += doubt.any;
    result.choices_flipped += doubt.flipped;
    result.flip_moves = std::max(result.flip_moves, doubt.moves);
  }
  if (!backward || call.tokens == 0) return result;

  std::vector<R> sums(gradients[0].size() - 1);
  for (const std::vector<R>& one : gradients)
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const R &sum = sums[k], &x = one[k + 1];
      sums[k] = {sum.v + x.v, sum.m + x.m, std::max(sum.n, x.n), sum.e + x.e, std::max(sum.w, x.w)};
    }
  std::size_t k = 0;
  for (std::size_t tensor = 1; tensor < 4; ++tensor)
    for (std::size_t i = 0; i < result.gradients[tensor]->value.size(); ++i, ++k) {
      may_add(sums[k], call.tokens);  // in any order
      put(*result.gradients[tensor], i, sums[k]);
    }
  return result;
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? expected_in<DType::float32>(question)
                                          : expected_in<DType::float64>(question);
}

}  // namespace fractus::oracle::kuramoto
