// One token of the oscillators on Companions: the branches that a correct kernel may take at its wraps, its angles on
// each, and the adjoint of a branch by the tape.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "oracle/companion_expected.h"
#include "oracle/companion_functions.h"
#include "oracle/companion_row.h"
#include "oracle/kuramoto.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle {

// sin(theta_j - theta_i) is sin theta_j cos theta_i - cos theta_j sin theta_i at angles of which one is moved by the
// rounding of the difference, at most u (|theta_j| + |theta_i|). Companion bounds such products one by one, so each may
// have an angle moved in its own way, and the same holds for the products of the adjoint.
template <DType judged, class Each>
void move_by_a_difference(std::size_t P, const Each& each) {
  if (P < 2) return;  // of one angle the difference is 0
  double largest = 0;
  for (std::size_t p = 0; p < P; ++p) largest = std::max(largest, magnitude(each(p)->v) + error(*each(p)));
  for (std::size_t p = 0; p < P; ++p) each(p)->e += gamma<judged>(1) * 2 * largest;
}

template <DType judged>
void may_take_differences(Row<Companion<judged>>& angles) {
  std::vector<Companion<judged>> numbers;
  for (std::size_t p = 0; p < angles.size(); ++p) numbers.push_back(angles.get(p));
  move_by_a_difference<judged>(numbers.size(), [&](std::size_t p) { return &numbers[p]; });
  for (std::size_t p = 0; p < angles.size(); ++p) angles.set(p, numbers[p]);
}

template <DType judged>
void may_take_differences(Row<Taped<Companion<judged>>>& angles) {
  std::vector<Taped<Companion<judged>>> numbers;
  for (std::size_t p = 0; p < angles.size(); ++p) numbers.push_back(angles.get(p));
  move_by_a_difference<judged>(numbers.size(), [&](std::size_t p) { return &numbers[p].value; });
  for (std::size_t p = 0; p < angles.size(); ++p) angles.set(p, numbers[p]);
}

template <DType judged>
Companion<judged> sin_if_turned(const Companion<judged>& angle, double common) {
  Companion<judged> result = sin(angle);
  result.m += common;  // |sin(v + c)| <= |sin v| + |c|, and so for the slope by which its error moves it
  result.e += common * error(angle);
  return result;
}
template <DType judged>
Companion<judged> cos_if_turned(const Companion<judged>& angle, double common) {
  Companion<judged> result = cos(angle);
  result.m += common;
  result.e += common * error(angle);
  return result;
}
template <DType judged>
Taped<Companion<judged>> sin_if_turned(const Taped<Companion<judged>>& angle, double common) {
  return taped(sin_if_turned(angle.value, common), angle, cos_if_turned(angle.value, common));
}
template <DType judged>
Taped<Companion<judged>> cos_if_turned(const Taped<Companion<judged>>& angle, double common) {
  return taped(cos_if_turned(angle.value, common), angle, -sin_if_turned(angle.value, common));
}

}  // namespace fractus::oracle

namespace fractus::oracle::kuramoto {

// Beyond this many branches a token is undecidable.
inline constexpr std::size_t most_branches = 8;

// A number of every kernel, known as well as error(x) says: what follows it does not undo the roundings before it.
template <DType judged>
Companion<judged> closed_number(const Companion<judged>& x) {
  const double m = magnitude(x.v);
  return {x.v, m, 0, error(x) * (1 + 0x1p-40), std::max(x.w, m)};
}

// A constant that a kernel rounds so many times on its way from the numbers of the contract.
template <DType judged>
Companion<judged> rounded_constant(Base<judged> v, double roundings) {
  return {v, magnitude(v), roundings, 0, magnitude(v)};
}

template <DType judged>
Companion<judged> full_turn() {
  return rounded_constant<judged>(2 * std::numbers::pi_v<Base<judged>>, 1);
}

// The numbers of a call: omega (P), coupling_u (P,r) and coupling_lambda (r), row by row.
struct Parameters {
  const double *omega, *U, *lambda;
  std::size_t P, r;
};

template <DType judged>
Network<Companion<judged>> network_of(const Parameters& in, double dt, double damping) {
  using R = Companion<judged>;
  // A kernel rounds the scalar to its type, and weights of stages with it: 1/6, or 1/3 of it.
  const auto constant = [](double scalar, int divisor, double roundings) {
    return rounded_constant<judged>(Base<judged>(scalar) / divisor, roundings);
  };
  Network<R> network{.omega = Row<R>(in.P),
                     .U = zero_matrix<R>(in.P, in.r),
                     .U_transposed = zero_matrix<R>(in.r, in.P),
                     .lambda = Row<R>(in.r),
                     .offsets = Row<R>(in.P),
                     .step = constant(dt, 1, 1),
                     .half_step = constant(dt, 2, 2),
                     .sixth_of_step = constant(dt, 6, 3),
                     .damping = constant(damping, 1, 1)};
  for (std::size_t p = 0; p < in.P; ++p) {
    network.omega.set(p, R(in.omega[p]));
    const Base<judged> offset = full_turn<judged>().v * static_cast<double>(p) / static_cast<double>(in.P);
    network.offsets.set(p, p == 0 ? R(0) : rounded_constant<judged>(offset, 3));
    for (std::size_t k = 0; k < in.r; ++k) {
      network.U[p].set(k, R(in.U[p * in.r + k]));
      network.U_transposed[k].set(p, R(in.U[p * in.r + k]));
    }
  }
  for (std::size_t k = 0; k < in.r; ++k) network.lambda.set(k, R(in.lambda[k]));
  return network;
}

// The sum in any order, and the quotient, which may come first.
template <DType judged>
Companion<judged> mean_of(const Row<Companion<judged>>& x) {
  using R = Companion<judged>;
  const auto d = static_cast<double>(x.size());
  R sum;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const R number = x.get(i);
    sum = {sum.v + number.v, sum.m + number.m, x.n + d, sum.e + number.e, std::max(sum.w, number.w)};
  }
  return sum / R(d);
}

// 2 pi mean(hidden) as a token's kernel has it: one number for all of its oscillators. What it is off by turns them all
// alike, and sums in any order over hundreds of numbers make it the largest error of all; but the coupling sees only
// differences of angles. Let d be that turn. In exact arithmetic f(theta + d) = f(theta) - damping d, so a step makes
// of d what RK4 makes of d' = -damping d, whatever theta is; and no derivative of the result depends on d. So v is
// taken at d = 0, every m holds what it may be at any |d| <= common, and d itself enters theta alone, at the end.
template <DType judged>
struct Origin {
  Companion<judged> angle;  // exact
  double common = 0;        // the kernel's own is off by no more
};

template <DType judged>
Origin<judged> origin_of(const Companion<judged>& mean) {
  if (vanishes(mean)) return {};
  const Companion<judged> angle = full_turn<judged>() * mean;
  const double common = error(angle) * (1 + base_slack), m = magnitude(angle.v) + common;
  return {{angle.v, m, 0, 0, m}, common};
}

// At every stage of a step, and behind it, d is at most this multiple of what it was: with z = -dt damping the factors
// are 1 + z/2, 1 + z/2 + z^2/4, 1 + z + z^2/2 + z^3/4 and 1 + z + z^2/2 + z^3/6 + z^4/24.
template <DType judged>
double growth(const Network<Companion<judged>>& network) {
  const double z = magnitude(network.step.v * network.damping.v);
  return (1 + z * (1 + z * (0.5 + z * (0.25 + z / 24)))) * (1 + 0x1p-40);
}

// x less so many turns, to the nearest multiple of 2 pi that a kernel may reduce to. A kernel's remainder is by its own
// 2 pi, which is rounded once: the angle moves by that for each turn. Two roundings are for one that counts in turns
// and multiplies by 2 pi last.
template <DType judged>
Companion<judged> less_turns(const Companion<judged>& x, std::int64_t turns) {
  if (turns == 0) return x;
  Companion<judged> result = x - Companion<judged>(static_cast<double>(turns)) * full_turn<judged>();
  may_add(result, 2);
  return result;
}

// What a remainder may round after that, as numbers up to two turns: ((x mod 2 pi) + 2 pi) mod 2 pi in a language whose
// mod truncates, and a result that rounds to 2 pi and is then 0. Of 0 itself there is nothing to round.
template <DType judged>
double remainder_error(const Companion<judged>& x) {
  return vanishes(x) ? 0 : gamma<judged>(4) * 2 * std::numbers::pi;
}

// The numbers of turns that a correct kernel's floor modulus may take off x: the definition's own first, and the one
// beside it where the certified interval straddles a multiple of 2 pi. None where more than two are possible.
template <DType judged>
std::vector<std::int64_t> turns_of(const Companion<judged>& x, double common) {
  const Base<judged> turn = full_turn<judged>().v, own = std::floor(x.v / turn);
  if (!(std::fabs(own) < Base<judged>(0x1p50))) return {};
  const auto t = static_cast<std::int64_t>(own);
  const Base<judged> above = x.v - own * turn, below = turn - above;  // the multiples on either side
  const double to_lower = (error(less_turns(x, t)) + common) * (1 + base_slack),
               to_upper = (error(less_turns(x, t + 1)) + common + remainder_error(x)) * (1 + base_slack);
  if (!(std::max(to_lower, to_upper) < std::numbers::pi)) return {};
  if (above < to_lower) return {t, t - 1};
  if (below <= to_upper) return {t, t + 1};
  return {t};
}

// x on the circle. Where nothing sees whole turns, as without damping, a wrap in doubt is no choice: the number stands
// for a kernel that took off one turn more or less too, which is known by that kernel's error and rounds as 2 pi may.
template <DType judged>
Companion<judged> wrapped(const Companion<judged>& x, std::int64_t turns, double common, bool any_turn = false) {
  Companion<judged> result = closed_number(less_turns(x, turns));
  if (any_turn && !vanishes(x)) {
    for (const std::int64_t beside : {turns - 1, turns + 1})
      result.e = std::max(result.e, closed_number(less_turns(x, beside)).e);
    result.m = std::max(result.m, 2 * std::numbers::pi);
  }
  result.e += remainder_error(x);
  result.m += common;
  return result;
}

// An element of theta: the angle on the circle that the contract's [0, 2 pi) unrolls, at the place nearest to what the
// judged form has there. The interval around 0 has one part just above 0 and one just below 2 pi.
struct Placed {
  double value = 0, remainder = 0;
  double tolerance = 0;  // infinity: no bound
  bool in_doubt = false;
};

template <DType judged>
Placed placed(const Companion<judged>& x, double common, std::optional<double> got) {
  const std::vector<std::int64_t> turns = turns_of(x, common);
  if (turns.empty()) return {.tolerance = std::numeric_limits<double>::infinity(), .in_doubt = true};
  Companion<judged> best = wrapped(x, turns.front(), common);
  if (got && turns.size() > 1) {
    const Companion<judged> other = wrapped(x, turns.back(), common);
    if (std::fabs(other.v - Base<judged>(*got)) < std::fabs(best.v - Base<judged>(*got))) best = other;
  }
  const double value = static_cast<double>(best.v), tolerance = (error(best) + common) * (1 + 0x1p-30);
  return {value, static_cast<double>(best.v - static_cast<Base<judged>>(value)), tolerance, turns.size() > 1};
}

// A way through the wraps that a correct kernel may take.
template <DType judged>
struct Branch {
  std::vector<std::int64_t> turns;  // taken off at each wrap but the last, step by step
  Row<Companion<judged>> theta;     // before the last wrap
  double common = 0;                // what may have turned them all alike
};

// All of them, the definition's own first; none where there are more than most_branches, or an interval is as wide as a
// turn.
template <DType judged>
std::vector<Branch<judged>> branches(const Network<Companion<judged>>& network, const Origin<judged>& origin,
                                     std::size_t n_steps) {
  const Row<Companion<judged>> start = started(network, origin.angle);
  const double per_step = growth(network);
  const bool any_turn = network.damping.v == 0;
  std::vector<Branch<judged>> found;
  std::vector<std::vector<std::int64_t>> open{{}};  // first turns of branches that are still to be followed
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open.size() > most_branches) return {};
    Branch<judged> branch{.turns = open[i], .common = origin.common * std::pow(per_step, n_steps) * (1 + 0x1p-40)};
    std::size_t at = 0;
    bool lost = false;
    const auto wrap = [&](const Companion<judged>& x, double common) {
      if (at++ < open[i].size()) return wrapped(x, branch.turns[at - 1], common, any_turn);
      const std::vector<std::int64_t> turns = turns_of(x, common);
      lost = lost || turns.empty();
      branch.turns.push_back(turns.empty() ? 0 : turns.front());
      if (turns.size() > 1 && !any_turn) {
        open.push_back(branch.turns);
        open.back().back() = turns.back();
      }
      return wrapped(x, branch.turns.back(), common, any_turn);
    };
    branch.theta = run(network, start, n_steps, wrap, origin.common, per_step);
    if (lost) return {};
    found.push_back(std::move(branch));
  }
  return found;
}

// How far a form's angles are from a branch: the largest error over its tolerance.
template <DType judged>
double distance(const Branch<judged>& branch, const double* got) {
  double worst = 0;
  for (std::size_t p = 0; p < branch.theta.size(); ++p) {
    const Placed one = placed(branch.theta.get(p), branch.common, got[p]);
    const double error = std::fabs(got[p] - one.value - one.remainder);
    worst = std::max(worst, error == 0 ? 0 : error / one.tolerance);
  }
  return worst;
}

// The branch nearest to what a form has; the definition's own where none is nearer.
template <DType judged>
std::size_t nearest(const std::vector<Branch<judged>>& all, const double* got) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (distance(all[i], got) < distance(all[best], got)) best = i;
  return best;
}

// By how much the angles of two branches differ, at most, on the circle.
template <DType judged>
double moved_by_flip(const Branch<judged>& a, const Branch<judged>& b) {
  double most = 0;
  for (std::size_t p = 0; p < a.theta.size(); ++p)
    most = std::max(most, std::fabs(std::remainder(static_cast<double>(a.theta.get(p).v - b.theta.get(p).v),
                                                   2 * std::numbers::pi)));
  return most;
}

// Whether a token's wraps are in doubt, whether the form's branch is another than the definition's, and how far apart
// the branches are.
struct Doubt {
  bool any = false, flipped = false;
  double moves = 0;
};

inline void count(const std::vector<Doubt>& doubts, Expected& expected) {
  for (const Doubt& doubt : doubts) {
    expected.choices_in_doubt += doubt.any;
    expected.choices_flipped += doubt.flipped;
    expected.flip_moves = std::max(expected.flip_moves, doubt.moves);
  }
}

template <DType judged>
struct Settled {
  std::vector<Branch<judged>> branches;  // none: there is no bound
  std::size_t branch = 0;                // the nearest to the form's own angles
  Doubt doubt;
};

// One token: its branches, and from element `first` on theta by the nearest to `got`, the form's own angles (P), or
// where there are none (nullptr) by the definition's, without a bound where a wrap is in doubt.
template <DType judged>
Settled<judged> settle(const Network<Companion<judged>>& network, const Origin<judged>& origin, std::size_t n_steps,
                       const double* got, ExpectedTensor& theta, std::size_t first) {
  Settled<judged> result{.branches = branches(network, origin, n_steps)};
  const std::vector<Branch<judged>>& all = result.branches;
  if (got != nullptr && !all.empty()) result.branch = nearest(all, got);
  result.doubt = {.any = all.size() != 1, .flipped = result.branch != 0};
  for (std::size_t i = 1; i < all.size(); ++i)
    result.doubt.moves = std::max(result.doubt.moves, moved_by_flip(all[0], all[i]));
  for (std::size_t p = 0; p < network.omega.size(); ++p) {
    Placed one{.tolerance = std::numeric_limits<double>::infinity()};
    if (!all.empty())
      one = placed(all[result.branch].theta.get(p), all[result.branch].common,
                   got == nullptr ? std::nullopt : std::optional(got[p]));
    result.doubt.any = result.doubt.any || one.in_doubt;
    theta.value[first + p] = one.value;
    if (!theta.remainder.empty()) theta.remainder[first + p] = one.remainder;
    theta.tolerance[first + p] = one.tolerance;
    if (got == nullptr && (one.in_doubt || all.size() > 1)) put_undecidable(theta, first + p);
  }
  return result;
}

// Of one token.
template <class R>
struct Gradients {
  R angle{};  // of 2 pi mean(hidden)
  Row<R> omega;
  Matrix<R> U;
  Row<R> lambda;
};

// The adjoint of one branch, given the cotangents of its angles.
template <DType judged>
Gradients<Companion<judged>> adjoint(const Network<Companion<judged>>& network, const Origin<judged>& origin,
                                     std::size_t n_steps, const Branch<judged>& branch,
                                     const Row<Companion<judged>>& cotangents) {
  using R = Companion<judged>;
  using X = Taped<R>;
  Tape<R> tape;
  X::tape = &tape;
  const auto constant = [](const R& x) { return X(x, Tape<R>::constant); };
  const auto leaves = [](const Row<R>& row) {
    Row<X> result(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) result.set(i, X::leaf(row.get(i)));
    return result;
  };
  const std::size_t P = network.omega.size(), r = network.lambda.size();
  Network<X> on_tape{.omega = leaves(network.omega),
                     .U_transposed = zero_matrix<X>(r, P),
                     .lambda = leaves(network.lambda),
                     .offsets = Row<X>(P),
                     .step = constant(network.step),
                     .half_step = constant(network.half_step),
                     .sixth_of_step = constant(network.sixth_of_step),
                     .damping = constant(network.damping)};
  for (std::size_t p = 0; p < P; ++p) {
    on_tape.U.push_back(leaves(network.U[p]));
    on_tape.offsets.set(p, constant(network.offsets.get(p)));
    for (std::size_t k = 0; k < r; ++k) on_tape.U_transposed[k].set(p, on_tape.U[p].get(k));
  }
  const X angle = X::leaf(origin.angle);
  std::size_t at = 0;
  const bool any_turn = network.damping.v == 0;
  const auto wrap = [&](const X& x, double common) {
    return X(wrapped(x.value, branch.turns[at++], common, any_turn), x.node);
  };
  const Row<X> theta = run(on_tape, started(on_tape, angle), n_steps, wrap, origin.common, growth(network));
  std::vector<R> seeds(tape.size());
  for (std::size_t p = 0; p < P; ++p) seeds[theta.get(p).node] = cotangents.get(p);
  const std::vector<R> pulled = tape.pull_back(std::move(seeds));
  X::tape = nullptr;

  const auto gradient = [&](const Row<X>& row) {
    Row<R> result(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) result.set(i, pulled[row.get(i).node]);
    return result;
  };
  Gradients<R> result{pulled[angle.node], gradient(on_tape.omega), {}, gradient(on_tape.lambda)};
  for (const Row<X>& row : on_tape.U) result.U.push_back(gradient(row));
  return result;
}

}  // namespace fractus::oracle::kuramoto
