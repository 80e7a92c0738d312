#include "oracle/kuramoto.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "oracle/kuramoto_expected.h"
#include "oracle/kuramoto_token.h"
#include "oracle/parallel.h"

namespace fractus::oracle::kuramoto {
namespace {

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

// What a token gives to the gradients: 2 pi mean(hidden) first, then what is shared. Where no form has settled its
// branch it stands for all of them.
template <DType judged>
std::vector<Companion<judged>> gradients_of(const Call& call, const Network<Companion<judged>>& network,
                                            const Origin<judged>& origin, const Settled<judged>& token, bool is_settled,
                                            const double* cotangent) {
  const std::size_t count = 1 + call.P + call.P * call.r + call.r;
  std::vector<std::vector<Companion<judged>>> lists(count);  // by element, one for each branch
  for (std::size_t i = 0; i < token.branches.size(); ++i) {
    if (is_settled && i != token.branch) continue;
    const auto gradients =
        adjoint(network, origin, call.n_steps, token.branches[i], leaves_of<judged>(cotangent, call.P));
    lists[0].push_back(gradients.angle);
    const std::vector<Companion<judged>> all = shared(gradients);
    for (std::size_t k = 0; k < all.size(); ++k) lists[k + 1].push_back(all[k]);
  }
  std::vector<Companion<judged>> result;
  for (const auto& list : lists) result.push_back(list.empty() ? without_bound<judged>() : hull(list));
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
  result.radius_per_tolerance = base_radius<judged>;
  const Shape& tokens = call.hidden.shape;
  result.outputs = {blank<judged>("theta", {tokens[0], tokens[1], static_cast<std::int64_t>(call.P)})};
  if (got != nullptr && got->values.size() != call.tokens * call.P) got = nullptr;
  const bool backward = question.cotangent.has_value();
  if (backward)
    result.gradients = {blank<judged>("dhidden", call.hidden.shape), blank<judged>("domega", call.omega.shape),
                        blank<judged>("dcoupling_u", call.U.shape),
                        blank<judged>("dcoupling_lambda", call.lambda.shape)};

  std::vector<Doubt> doubts(call.tokens);
  std::vector<std::vector<R>> gradients(backward ? call.tokens : 0);
  for_each(call.tokens, question.threads, [&](std::size_t t) {
    const Origin<judged> origin = origin_of(mean_of(leaves_of<judged>(call.hidden.values.data() + t * call.d, call.d)));
    const double* theta = got == nullptr ? nullptr : got->values.data() + t * call.P;
    const Settled<judged> token = settle(network, origin, call.n_steps, theta, result.outputs[0], t * call.P);
    doubts[t] = token.doubt;
    if (!backward) return;
    gradients[t] =
        gradients_of(call, network, origin, token, theta != nullptr, question.cotangent->values.data() + t * call.P);
    // Every element of hidden moves the angle by 2 pi / d of itself.
    const R of_element = full_turn<judged>() * gradients[t].front() / R(static_cast<double>(call.d));
    for (std::size_t i = 0; i < call.d; ++i) put(of_element, *result.gradients[0], t * call.d + i);
  });
  count(doubts, result);
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
      put(sums[k], *result.gradients[tensor], i);
    }
  return result;
}

}  // namespace

Expected expected(const Question& question) {
  return question.dtype == DType::float32 ? expected_in<DType::float32>(question)
                                          : expected_in<DType::float64>(question);
}

}  // namespace fractus::oracle::kuramoto
