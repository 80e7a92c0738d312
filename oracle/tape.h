// A tape over any number type: reverse-mode derivatives of a definition, in that number system. Hand-written adjoints
// are held against it over GF(2^61-1), where equality is exact (Griewank and Walther, Evaluating Derivatives, ch. 3).
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

#include "oracle/number.h"

namespace fractus::oracle {

template <class R>
class Tape {
 public:
  static constexpr std::size_t constant = static_cast<std::size_t>(-1);

  // d(node)/d(parent) for up to two parents. Where `unit` is 1 or -1 it is exactly that, and costs no product.
  struct Node {
    std::size_t parent[2];
    R partial[2];
    int unit[2] = {0, 0};
  };

  std::size_t leaf() { return push({{constant, constant}, {R(0), R(0)}}); }
  std::size_t push(const Node& node) {
    nodes_.push_back(node);
    return nodes_.size() - 1;
  }

  // Cotangents of all nodes, given seeds for some: one sweep, last node first. What arrives at a node may be added in
  // any order.
  std::vector<R> pull_back(std::vector<R> cotangents) const {
    cotangents.resize(nodes_.size(), R(0));
    std::vector<std::size_t> arrivals(nodes_.size());
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      R& arrived = cotangents[i];
      if (arrivals[i] > 1) may_add(arrived, arrivals[i] - 1);
      if (vanishes(arrived)) continue;
      const Node& node = nodes_[i];
      for (int k = 0; k < 2; ++k) {
        if (node.parent[k] == constant) continue;
        const R term = node.unit[k] == 0 ? node.partial[k] * arrived : node.unit[k] > 0 ? arrived : -arrived;
        R& sum = cotangents[node.parent[k]];
        sum = vanishes(sum) ? term : sum + term;
        ++arrivals[node.parent[k]];
      }
    }
    return cotangents;
  }

  std::size_t size() const { return nodes_.size(); }

 private:
  std::vector<Node> nodes_;
};

// A number recorded on the tape that is current on this thread.
template <class R>
struct Taped {
  R value{0};
  std::size_t node = Tape<R>::constant;

  static inline thread_local Tape<R>* tape = nullptr;

  Taped() = default;
  // A constant, from whatever R takes: a fraction stays one where R has it.
  template <class X>
  requires std::constructible_from<R, const X&>
  explicit Taped(const X& x) : value(x) {}
  Taped(R x, std::size_t at) : value(x), node(at) {}
  static Taped leaf(const R& x) { return {x, tape->leaf()}; }

  friend Taped operator+(const Taped& a, const Taped& b) { return record(a.value + b.value, a, R(1), b, R(1), 1, 1); }
  friend Taped operator-(const Taped& a, const Taped& b) { return record(a.value - b.value, a, R(1), b, -R(1), 1, -1); }
  friend Taped operator-(const Taped& a) { return record(-a.value, a, -R(1), Taped(), R(0), -1, 0); }
  friend Taped operator*(const Taped& a, const Taped& b) { return record(a.value * b.value, a, b.value, b, a.value); }
  friend Taped operator/(const Taped& a, const Taped& b) {
    const R quotient = a.value / b.value;
    return record(quotient, a, R(1) / b.value, b, -(quotient / b.value));
  }

  // value with d(value) = da d(a) + db d(b); a constant where both are.
  static Taped record(const R& value, const Taped& a, const R& da, const Taped& b, const R& db, int unit_a = 0,
                      int unit_b = 0) {
    if (a.node == Tape<R>::constant && b.node == Tape<R>::constant) return {value, Tape<R>::constant};
    return {value, tape->push({{a.node, b.node}, {da, db}, {unit_a, unit_b}})};
  }
};

template <class R>
void may_add(Taped<R>& x, std::size_t terms) {
  may_add(x.value, terms);
}

template <class R>
struct PowerOfTen<Taped<R>> {
  static Taped<R> of(int exponent) { return {power_of_ten<R>(exponent), Tape<R>::constant}; }
};

template <class R>
Branch branch(const Taped<R>& den, int exponent) {
  return branch(den.value, exponent);
}

}  // namespace fractus::oracle
