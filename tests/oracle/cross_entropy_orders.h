// Orders in which a correct kernel may evaluate cross entropy and its gradients, as plain loops in float or double, and
// faults that a wrong one may have.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "oracle/cross_entropy_expected.h"

namespace fractus::oracle::cross_entropy {

enum class Sum { sequential, reversed, pairwise, blocks, fused, wide };
enum class Softmax { two_pass, online };
enum class Power { e, two };
enum class Share { quotient, reciprocal, log_softmax, rescaled };
enum class Scale { first, last, twice };              // g/N before the products; g/N after them; 1/N before and g after
enum class Mean { of_rows, divided_rows, in_parts };  // sum / N; sum of loss/N; sum of l less sum of y_target
enum class Fault { none, bf16, unshifted_target, tail, temperature, no_shift, last_one_hot };

struct Order {
  const char* name;
  Sum sum = Sum::sequential;
  Softmax softmax = Softmax::two_pass;
  std::size_t vocabulary_block = 1;  // of the online softmax
  Power power = Power::e;
  Share share = Share::quotient;
  Scale scale = Scale::first;
  Mean mean = Mean::of_rows;
  bool one_hot_apart = false;  // W_target is subtracted from the sum over p W, h from that over p^T h
  std::size_t chunk = 1000;    // rows, in whose chunks dW is summed
  Fault fault = Fault::none;
};

inline const std::vector<Order>& orders() {
  static const std::vector<Order> list{
      {"sequential"},
      {"reversed", Sum::reversed, Softmax::two_pass, 1, Power::e, Share::reciprocal, Scale::first, Mean::divided_rows},
      {"pairwise", Sum::pairwise, Softmax::two_pass, 1, Power::e, Share::quotient, Scale::last, Mean::in_parts},
      {"blocks of 8", Sum::blocks, Softmax::two_pass, 1, Power::e, Share::quotient, Scale::twice},
      {"fused", Sum::fused, Softmax::two_pass, 1, Power::e, Share::reciprocal, Scale::last},
      {"double inside", Sum::wide, Softmax::two_pass, 1, Power::e, Share::quotient, Scale::first},
      {"online by elements", Sum::sequential, Softmax::online, 1, Power::e, Share::rescaled},
      {"online by blocks", Sum::sequential, Softmax::online, 7, Power::e, Share::rescaled, Scale::twice, Mean::of_rows,
       false, 2},
      {"online in powers of two", Sum::pairwise, Softmax::online, 16, Power::two, Share::log_softmax},
      {"powers of two", Sum::sequential, Softmax::two_pass, 1, Power::two, Share::quotient, Scale::first,
       Mean::in_parts},
      {"log softmax", Sum::sequential, Softmax::two_pass, 1, Power::e, Share::log_softmax},
      {"log softmax, fused", Sum::fused, Softmax::two_pass, 1, Power::e, Share::log_softmax, Scale::last,
       Mean::divided_rows},
      {"one-hot apart", Sum::sequential, Softmax::two_pass, 1, Power::e, Share::quotient, Scale::first, Mean::of_rows,
       true},
      {"one-hot apart, scaled last", Sum::reversed, Softmax::two_pass, 1, Power::e, Share::log_softmax, Scale::last,
       Mean::of_rows, true, 3},
      {"rows one by one", Sum::sequential, Softmax::two_pass, 1, Power::e, Share::quotient, Scale::first,
       Mean::divided_rows, false, 1},
      {"chunks of two", Sum::pairwise, Softmax::online, 5, Power::e, Share::quotient, Scale::last, Mean::in_parts,
       false, 2},
  };
  return list;
}

struct Answer {
  double loss = 0;
  std::vector<double> dh, dW;
};

template <class F>
class Evaluation {
 public:
  Evaluation(const Question& question, const Order& order) : o_(order) {
    const Array &h = *question.inputs[0], &W = *question.inputs[1];
    N_ = static_cast<std::size_t>(h.shape[0]), d_ = static_cast<std::size_t>(h.shape[1]),
    V_ = static_cast<std::size_t>(W.shape[0]);
    h_.assign(h.values.begin(), h.values.end());
    W_.assign(W.values.begin(), W.values.end());
    for (double t : question.inputs[2]->values) targets_.push_back(static_cast<std::size_t>(t));
    if (question.cotangent) g_ = static_cast<F>(question.cotangent->values[0]);
  }

  Answer operator()() {
    Answer answer;
    std::vector<F> p(N_ * V_);
    F loss = 0, logs = 0, picked = 0;
    const F count = static_cast<F>(N_);
    for (std::size_t n = 0; n < N_; ++n) {
      const Row row = softmax(n, p.data() + n * V_);
      const F one = o_.fault == Fault::unshifted_target ? (row.a + row.l) - row.x_target : row.l - row.y_target;
      loss += o_.mean == Mean::divided_rows ? one / count : one;
      logs += row.l, picked += row.y_target;
    }
    if (o_.mean == Mean::in_parts) loss = logs - picked;
    answer.loss = static_cast<double>(o_.mean == Mean::divided_rows ? loss : loss / count);
    gradients(p, answer);
    return answer;
  }

 private:
  struct Row {
    F a = 0, l = 0, y_target = 0, x_target = 0;
  };

  // sum of a(i) b(i) over n terms
  template <class A, class B>
  F total(std::size_t n, A a, B b) const {
    switch (o_.sum) {
      case Sum::fused: {
        F sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum = std::fma(a(i), b(i), sum);
        return sum;
      }
      case Sum::wide: {
        std::conditional_t<sizeof(F) == 4, double, long double> sum = 0;
        for (std::size_t i = 0; i < n; ++i) sum += static_cast<decltype(sum)>(a(i)) * b(i);
        return static_cast<F>(sum);
      }
      case Sum::blocks: {
        F sum = 0;
        for (std::size_t first = 0; first < n; first += 8) {
          F part = 0;
          for (std::size_t i = first; i < std::min(n, first + 8); ++i) part += a(i) * b(i);
          sum += part;
        }
        return sum;
      }
      case Sum::pairwise: return pairwise(0, n, a, b);
      default: {
        F sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t k = o_.sum == Sum::reversed ? n - 1 - i : i;
          sum += a(k) * b(k);
        }
        return sum;
      }
    }
  }
  template <class A, class B>
  static F pairwise(std::size_t first, std::size_t end, A a, B b) {
    if (end - first == 1) return a(first) * b(first);
    const std::size_t middle = (first + end) / 2;
    return pairwise(first, middle, a, b) + pairwise(middle, end, a, b);
  }

  F exponential(F y) const {
    static constexpr F log2_e = static_cast<F>(1.4426950408889634074L);
    return o_.power == Power::two ? std::exp2(y * log2_e) : std::exp(y);
  }
  F logarithm(F s) const {
    static constexpr F log_2 = static_cast<F>(0.69314718055994530942L);
    return o_.power == Power::two ? std::log2(s) * log_2 : std::log(s);
  }

  F logit(std::size_t n, std::size_t i) const {
    F x = total(
        d_, [&](std::size_t k) { return h_[n * d_ + k]; }, [&](std::size_t k) { return W_[i * d_ + k]; });
    if (o_.fault == Fault::temperature) x /= static_cast<F>(0.9);
    if (o_.fault == Fault::bf16) {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
      x = static_cast<F>(std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000));
    }
    return x;
  }

  Row softmax(std::size_t n, F* p) const {
    const auto one = [](std::size_t) { return F(1); };
    std::vector<F> x(V_), e(V_), shift(V_);
    for (std::size_t i = 0; i < V_; ++i) x[i] = logit(n, i);
    Row row;
    row.a = o_.fault == Fault::no_shift ? F(0) : *std::max_element(x.begin(), x.end());
    F s = 0;
    const std::size_t summed = o_.fault == Fault::tail ? V_ - V_ / 8 : V_;
    if (o_.softmax == Softmax::online) {
      F a = -std::numeric_limits<F>::infinity();
      for (std::size_t first = 0; first < V_; first += o_.vocabulary_block) {
        const std::size_t end = std::min(V_, first + o_.vocabulary_block);
        const F next = std::max(a, *std::max_element(x.begin() + first, x.begin() + end));
        if (first > 0) s *= exponential(a - next);
        a = next;
        for (std::size_t i = first; i < end; ++i) e[i] = exponential(x[i] - a), shift[i] = a;
        s += total(
            end - first, [&](std::size_t i) { return e[first + i]; }, one);
      }
    } else {
      for (std::size_t i = 0; i < V_; ++i) e[i] = exponential(x[i] - row.a);
      s = total(
          summed, [&](std::size_t i) { return e[i]; }, one);
    }
    row.l = logarithm(s);
    row.x_target = x[targets_[n]];
    row.y_target = row.x_target - row.a;
    for (std::size_t i = 0; i < V_; ++i) switch (o_.share) {
        case Share::quotient: p[i] = exponential(x[i] - row.a) / s; break;
        case Share::reciprocal: p[i] = exponential(x[i] - row.a) * (1 / s); break;
        case Share::log_softmax: p[i] = exponential((x[i] - row.a) - row.l); break;
        case Share::rescaled: p[i] = e[i] * exponential(shift[i] - row.a) / s; break;  // as autograd of online has it
      }
    return row;
  }

  void gradients(std::vector<F>& p, Answer& answer) const {
    const F count = static_cast<F>(N_);
    const F before = o_.scale == Scale::first   ? g_ / count
                     : o_.scale == Scale::twice ? 1 / count
                                                : F(1),
            after = o_.scale == Scale::first   ? F(1)
                    : o_.scale == Scale::twice ? g_
                                               : g_ / count;
    const std::size_t last_chunk = (N_ - 1) / o_.chunk * o_.chunk;
    for (std::size_t n = 0; n < N_; ++n) {
      const bool dropped = o_.fault == Fault::last_one_hot && n >= last_chunk;
      if (!o_.one_hot_apart && !dropped) p[n * V_ + targets_[n]] -= 1;
      for (std::size_t i = 0; i < V_; ++i) p[n * V_ + i] *= before;
    }
    for (std::size_t n = 0; n < N_; ++n)
      for (std::size_t k = 0; k < d_; ++k) {
        F sum = total(
            V_, [&](std::size_t i) { return p[n * V_ + i]; }, [&](std::size_t i) { return W_[i * d_ + k]; });
        if (o_.one_hot_apart) sum -= before * W_[targets_[n] * d_ + k];
        answer.dh.push_back(static_cast<double>(sum * after));
      }
    for (std::size_t i = 0; i < V_; ++i)
      for (std::size_t k = 0; k < d_; ++k) {
        F sum = 0;
        for (std::size_t first = 0; first < N_; first += o_.chunk) {
          sum += total(
              std::min(o_.chunk, N_ - first), [&](std::size_t n) { return p[(first + n) * V_ + i]; },
              [&](std::size_t n) { return h_[(first + n) * d_ + k]; });
          if (!o_.one_hot_apart) continue;
          for (std::size_t n = first; n < std::min(N_, first + o_.chunk); ++n)
            if (targets_[n] == i) sum -= before * h_[n * d_ + k];
        }
        answer.dW.push_back(static_cast<double>(sum * after));
      }
  }

  Order o_;
  std::size_t N_, d_, V_;
  std::vector<F> h_, W_;
  std::vector<std::size_t> targets_;
  F g_ = 0;
};

inline Answer evaluated(const Question& question, const Order& order) {
  return question.dtype == DType::float32 ? Evaluation<float>(question, order)()
                                          : Evaluation<double>(question, order)();
}

}  // namespace fractus::oracle::cross_entropy
