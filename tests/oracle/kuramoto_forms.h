// Calls of the oscillators for the oracle's tests, and forms in which a correct kernel may evaluate them: plain
// floating point, differentiated by the tape, and sharing nothing with the definition. Faults that a wrong one may
// have.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "oracle/kuramoto_expected.h"
#include "oracle/tape_functions.h"

namespace fractus::oracle::kuramoto {

enum class Fill { ordinary, negative, strong, fresh, large, undamped, near_wrap, fast, equal, zeros };
inline constexpr int fill_count = 10;

struct Draw {
  int T = 1, d = 1, P = 1, r = 1, n_steps = 1;
  Fill fill = Fill::ordinary;
  std::uint64_t seed = 0;
};

inline std::ostream& operator<<(std::ostream& os, const Draw& x) {
  static constexpr const char* names[] = {"ordinary", "negative",  "strong", "fresh", "large",
                                          "undamped", "near_wrap", "fast",   "equal", "zeros"};
  return os << "T " << x.T << " d " << x.d << " P " << x.P << " r " << x.r << " n_steps " << x.n_steps << " fill "
            << names[static_cast<int>(x.fill)] << " seed " << x.seed;
}

inline rc::Gen<Draw> draws(int most_T = 3, int most_d = 20, int most_P = 7, int most_steps = 3) {
  using rc::gen::inRange;
  const auto numbers =
      rc::gen::tuple(inRange(1, most_T + 1), inRange(1, most_d + 1), inRange(1, most_P + 1), inRange(1, 5),
                     inRange(0, most_steps + 1), inRange(0, fill_count), inRange<std::uint64_t>(0, 1 << 30));
  // RapidCheck narrows ranges at small sizes; these are drawn at the full one always.
  return rc::gen::resize(rc::kNominalSize, rc::gen::map(numbers, [](const auto& drawn) {
                           const auto& [T, d, P, r, n_steps, fill, seed] = drawn;
                           return Draw{T, d, P, r, n_steps, static_cast<Fill>(fill), seed};
                         }));
}

inline Question made(const Draw& draw, DType dtype) {
  std::mt19937_64 engine(draw.seed);
  const auto normal = [&] { return std::normal_distribution<double>()(engine); };
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(engine);
  };
  const auto array = [&](const char* name, Shape shape, const auto& next) {
    Array result = zeros(name, dtype, std::move(shape));
    for (double& x : result.values) x = next();
    return result;
  };
  Question question{.dtype = dtype, .n_steps = draw.n_steps, .dt = 0.1, .damping = uniform(0.01, 0.4)};
  double strength = uniform(0.5, 2), low = -1.5, high = 1.5, fastest = 2;
  if (draw.fill == Fill::negative) high = -0.1;
  if (draw.fill == Fill::large) low = 50, high = 300;
  if (draw.fill == Fill::undamped) question.damping = 0;
  if (draw.fill == Fill::strong) question.dt = 0.7, strength = 3.0 / std::max(1, draw.n_steps);
  if (draw.fill == Fill::fast) fastest = 80;
  const double u = std::sqrt(strength / (draw.P * std::sqrt(draw.r)));
  Array hidden = array("hidden", {1, draw.T, draw.d}, normal);
  for (int t = 0; t < draw.T; ++t) {
    double* const row = hidden.values.data() + t * draw.d;
    double mean = 0;
    for (int i = 0; i < draw.d; ++i) mean += row[i] / draw.d;
    // At a wrap of one oscillator, within a few units in the last place.
    const double ulp = 4 * unit_roundoff(dtype), whole = -static_cast<double>(engine() % draw.P) / draw.P;
    const double wanted = draw.fill == Fill::fresh       ? 0
                          : draw.fill == Fill::near_wrap ? whole + ulp * static_cast<int>(engine() % 7) - 3 * ulp
                                                         : uniform(low, high);
    for (int i = 0; i < draw.d; ++i) row[i] = draw.fill == Fill::equal ? wanted : row[i] - mean + wanted;
  }
  question.inputs = {std::move(hidden), array("omega", {draw.P}, [&] { return uniform(-fastest, fastest); }),
                     array("coupling_u", {draw.P, draw.r}, [&] { return u * normal(); }),
                     array("coupling_lambda", {draw.r}, [&] { return uniform(-1.5, 1.5); })};
  question.cotangent = array("theta", {1, draw.T, draw.P}, normal);
  if (draw.fill == Fill::zeros)
    for (auto& input : question.inputs)
      for (double& x : input->values)
        if (engine() % 2 == 0) x = 0;
  for (auto* one :
       {&question.inputs[0], &question.inputs[1], &question.inputs[2], &question.inputs[3], &question.cotangent})
    for (double& x : (*one)->values) x = rounded(x, dtype);
  return question;
}

enum class Coupling { low_rank, formed, pairwise };
enum class Sum { forward, backward, pairwise };
enum class Stages { classical, one_by_one, scaled_first };
enum class Wrap { remainder, floor, in_turns, truncated_twice };
enum class Fault { none, damping_sign, euler, three_eighths, truncated, lambda_on_sine_only, offsets, no_wrap, bf16 };

struct Form {
  const char* name;
  Coupling coupling = Coupling::low_rank;
  Sum sum = Sum::forward;
  Stages stages = Stages::classical;
  Wrap wrap = Wrap::remainder;
  bool wide = false;  // a wider type inside, rounded once at the end
  Fault fault = Fault::none;
};

inline const std::vector<Form>& forms() {
  static const std::vector<Form> list{
      {"by rank"},
      {"by rank, backward", Coupling::low_rank, Sum::backward, Stages::one_by_one, Wrap::floor},
      {"by rank, pairwise sums", Coupling::low_rank, Sum::pairwise, Stages::scaled_first, Wrap::truncated_twice},
      {"formed", Coupling::formed, Sum::forward, Stages::one_by_one, Wrap::in_turns},
      {"formed, backward", Coupling::formed, Sum::backward, Stages::scaled_first, Wrap::remainder},
      {"sines of differences", Coupling::pairwise, Sum::forward, Stages::classical, Wrap::floor},
      {"sines of differences, pairwise sums", Coupling::pairwise, Sum::pairwise, Stages::one_by_one, Wrap::in_turns},
      {"wide", Coupling::low_rank, Sum::forward, Stages::classical, Wrap::remainder, true},
      {"wide sines of differences", Coupling::pairwise, Sum::backward, Stages::scaled_first, Wrap::floor, true},
  };
  return list;
}

struct Answer {
  Array theta;
  std::vector<std::vector<double>> gradients;  // dhidden, domega, dcoupling_u, dcoupling_lambda
};

template <class F>
class Evaluation {
 public:
  Evaluation(const Question& question, const Form& form)
      : form_(form),
        d_(static_cast<std::size_t>(question.inputs[0]->shape[2])),
        P_(question.inputs[1]->values.size()),
        r_(question.inputs[3]->values.size()),
        n_steps_(question.n_steps),
        dt_(static_cast<F>(question.dt)),
        damping_(static_cast<F>(question.damping)) {}

  Answer answer(const Question& question) {
    const std::size_t tokens = question.inputs[0]->values.size() / d_;
    Answer result{*question.cotangent, {}};
    std::vector<F> dhidden, shared(P_ + P_ * r_ + r_);
    for (std::size_t t = 0; t < tokens; ++t) {
      std::vector<F> row, h(d_);
      for (std::size_t i = 0; i < d_; ++i) h[i] = static_cast<F>(question.inputs[0]->values[t * d_ + i]);
      const F mean = sum(h) / static_cast<F>(d_);
      Tape<F> tape;
      X::tape = &tape;
      const X start = X::leaf(mean);
      std::vector<X> leaves;
      for (std::size_t input = 1; input < 4; ++input)
        for (const double x : question.inputs[input]->values) leaves.push_back(X::leaf(static_cast<F>(x)));
      const std::vector<X> theta = run(start, leaves);
      std::vector<F> seeds(tape.size());
      for (std::size_t p = 0; p < P_; ++p) {
        result.theta.values[t * P_ + p] = rounded(static_cast<double>(theta[p].value), question.dtype);
        seeds[theta[p].node] += static_cast<F>(question.cotangent->values[t * P_ + p]);
      }
      const std::vector<F> pulled = tape.pull_back(std::move(seeds));
      X::tape = nullptr;
      for (std::size_t i = 0; i < d_; ++i) dhidden.push_back(pulled[start.node] / static_cast<F>(d_));
      for (std::size_t k = 0; k < shared.size(); ++k) shared[k] += pulled[leaves[k].node];
    }
    const auto out = [&](const F* from, std::size_t count) {
      std::vector<double> values;
      for (std::size_t i = 0; i < count; ++i) values.push_back(rounded(static_cast<double>(from[i]), question.dtype));
      return values;
    };
    result.gradients = {out(dhidden.data(), dhidden.size()), out(shared.data(), P_), out(shared.data() + P_, P_ * r_),
                        out(shared.data() + P_ + P_ * r_, r_)};
    return result;
  }

 private:
  using X = Taped<F>;
  static constexpr F turn = static_cast<F>(2 * std::numbers::pi_v<long double>);

  template <class Y>
  Y sum(std::vector<Y> terms) const {
    if (form_.sum == Sum::backward) std::reverse(terms.begin(), terms.end());
    if (form_.sum == Sum::pairwise)
      for (; terms.size() > 1;) {
        std::vector<Y> halves;
        for (std::size_t i = 0; i < terms.size(); i += 2)
          halves.push_back(i + 1 < terms.size() ? terms[i] + terms[i + 1] : terms[i]);
        terms = std::move(halves);
      }
    Y result = terms[0];
    for (std::size_t i = 1; i < terms.size(); ++i) result = result + terms[i];
    return result;
  }

  F wrapped(F x) const {
    if (form_.fault == Fault::no_wrap) return x;
    if (form_.fault == Fault::truncated) return std::fmod(x, turn);
    F rest = std::fmod(x, turn);
    switch (form_.wrap) {
      case Wrap::remainder: return rest < 0 ? rest + turn : rest;
      case Wrap::floor: return x - std::floor(x / turn) * turn;
      case Wrap::in_turns: return (x / turn - std::floor(x / turn)) * turn;
      case Wrap::truncated_twice: return std::fmod(rest + turn, turn);
    }
    return x;
  }
  X wrap(const X& x) const { return {wrapped(x.value), x.node}; }

  std::vector<X> rate(const std::vector<X>& theta, const std::vector<X>& leaves) const {
    const auto U = [&](std::size_t p, std::size_t k) { return leaves[P_ + p * r_ + k]; };
    const auto lambda = [&](std::size_t k) { return leaves[P_ + P_ * r_ + k]; };
    const auto total = [&](std::size_t count, const auto& term) {
      std::vector<X> terms;
      for (std::size_t i = 0; i < count; ++i) terms.push_back(term(i));
      return sum(std::move(terms));
    };
    std::vector<X> s, c;
    for (const X& angle : theta) s.push_back(sin_of(angle)), c.push_back(cos_of(angle));
    const auto coupled = [&](std::size_t i, const std::vector<X>& x, bool with_lambda) {
      if (form_.coupling == Coupling::low_rank)
        return total(r_, [&](std::size_t k) {
          const X by_rank = total(P_, [&](std::size_t j) { return U(j, k) * x[j]; });
          return with_lambda ? U(i, k) * (lambda(k) * by_rank) : U(i, k) * by_rank;
        });
      return total(P_, [&](std::size_t j) {
        return total(r_, [&](std::size_t k) { return (U(i, k) * lambda(k)) * U(j, k); }) * x[j];
      });
    };
    std::vector<X> f;
    for (std::size_t i = 0; i < P_; ++i) {
      const X damped = X(form_.fault == Fault::damping_sign ? -damping_ : damping_) * theta[i];
      if (form_.coupling == Coupling::pairwise)
        f.push_back(leaves[i] - damped + total(P_, [&](std::size_t j) {
                      return total(r_, [&](std::size_t k) { return (U(i, k) * lambda(k)) * U(j, k); }) *
                             sin_of(theta[j] - theta[i]);
                    }));
      else
        f.push_back((leaves[i] - damped) +
                    (c[i] * coupled(i, s, true) - s[i] * coupled(i, c, form_.fault != Fault::lambda_on_sine_only)));
    }
    if (form_.fault == Fault::bf16)
      for (X& one : f)
        one.value = static_cast<F>(std::round(one.value * 128 / std::exp2(std::ilogb(one.value))) *
                                   std::exp2(std::ilogb(one.value)) / 128);
    return f;
  }

  std::vector<X> step(const std::vector<X>& theta, const std::vector<X>& leaves) const {
    const auto moved = [&](const X& h, const std::vector<X>& k) {
      std::vector<X> result;
      for (std::size_t p = 0; p < P_; ++p) result.push_back(theta[p] + h * k[p]);
      return result;
    };
    const auto k1 = rate(theta, leaves);
    if (form_.fault == Fault::euler) return moved(X(dt_), k1);
    const auto k2 = rate(moved(X(dt_ / 2), k1), leaves), k3 = rate(moved(X(dt_ / 2), k2), leaves),
               k4 = rate(moved(X(dt_), k3), leaves);
    std::vector<X> result;
    for (std::size_t p = 0; p < P_; ++p) {
      const X two(F(2)), three(F(3));
      if (form_.fault == Fault::three_eighths)
        result.push_back(theta[p] + X(dt_ / 8) * (k1[p] + three * k2[p] + three * k3[p] + k4[p]));
      else if (form_.stages == Stages::classical)
        result.push_back(theta[p] + X(dt_ / 6) * (k1[p] + two * k2[p] + two * k3[p] + k4[p]));
      else if (form_.stages == Stages::one_by_one)
        result.push_back((((theta[p] + X(dt_ / 6) * k1[p]) + X(dt_ / 3) * k2[p]) + X(dt_ / 3) * k3[p]) +
                         X(dt_ / 6) * k4[p]);
      else
        result.push_back(theta[p] +
                         (X(dt_) * k4[p] + two * (X(dt_) * k3[p] + X(dt_) * k2[p]) + X(dt_) * k1[p]) / X(F(6)));
    }
    return result;
  }

  std::vector<X> run(const X& mean, const std::vector<X>& leaves) const {
    std::vector<X> theta;
    for (std::size_t p = 0; p < P_; ++p) {
      const F divisor = static_cast<F>(form_.fault == Fault::offsets ? std::max<std::size_t>(P_ - 1, 1) : P_);
      const F share = static_cast<F>(p) / divisor;
      if (form_.wrap == Wrap::in_turns) {
        const X turns = mean + X(share);
        theta.push_back((turns - X(std::floor(turns.value))) * X(turn));
      } else {
        theta.push_back(wrap(mean * X(turn) + X(share * turn)));
      }
    }
    for (std::int64_t n = 0; n < n_steps_; ++n) {
      theta = step(theta, leaves);
      for (X& angle : theta) angle = wrap(angle);
    }
    return theta;
  }

  Form form_;
  std::size_t d_, P_, r_;
  std::int64_t n_steps_;
  F dt_, damping_;
};

inline Answer evaluated(const Question& question, const Form& form) {
  if (question.dtype == DType::float64)
    return form.wide ? Evaluation<long double>(question, form).answer(question)
                     : Evaluation<double>(question, form).answer(question);
  return form.wide ? Evaluation<double>(question, form).answer(question)
                   : Evaluation<float>(question, form).answer(question);
}

}  // namespace fractus::oracle::kuramoto
