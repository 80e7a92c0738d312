// Degrees of rational functions as a number type: plugged into a definition, it says of which degree the definition is,
// so that no degree is derived by hand beside it.
//
// A number stands for N / (f_1^a_1 f_2^a_2 ...), where the f are the numbers that something was divided by: it knows an
// upper bound of deg N, and the multiset of the f. Sums go over the least common multiset, products add the powers. No
// common factor is ever cancelled, so what it says is an upper bound of the degrees of the function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "oracle/number.h"

namespace fractus::oracle {

class Degree {
 public:
  // The denominators that numbers refer to. One has to live on this thread while there are numbers.
  class Ledger {
   public:
    Ledger() : before_(current) {
      current = this;
      sets_.push_back({});
    }
    ~Ledger() { current = before_; }
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

   private:
    friend class Degree;
    using Powers = std::map<std::uint64_t, std::int64_t>;  // by the number that divides
    struct Set {
      Powers powers;
      std::int64_t degree = 0;
    };
    std::size_t of(Powers powers) {
      const auto found = known_.find(powers);
      if (found != known_.end()) return found->second;
      std::int64_t degree = 0;
      for (const auto& [factor, power] : powers) degree += power * degrees_.at(factor);
      sets_.push_back({powers, degree});
      return known_.emplace(std::move(powers), sets_.size() - 1).first->second;
    }
    std::size_t combined(std::size_t a, std::size_t b, bool product) {
      if (b == 0 || (a == b && !product)) return a;
      if (a == 0) return b;
      const auto key = std::make_pair(std::make_pair(a, b), product);
      const auto found = combined_.find(key);
      if (found != combined_.end()) return found->second;
      Powers powers = sets_[a].powers;
      for (const auto& [factor, power] : sets_[b].powers) {
        std::int64_t& its = powers[factor];
        its = product ? its + power : std::max(its, power);
      }
      return combined_[key] = of(std::move(powers));
    }

    static inline thread_local Ledger* current = nullptr;
    Ledger* before_;
    std::uint64_t serial_ = 0;
    std::map<std::uint64_t, std::int64_t> degrees_;
    std::vector<Set> sets_;
    std::map<Powers, std::size_t> known_;
    std::map<std::pair<std::pair<std::size_t, std::size_t>, bool>, std::size_t> combined_;
  };

  Degree() = default;
  explicit Degree(std::int64_t constant) : zero_(constant == 0) {}
  // Another one at each call.
  static Degree variable() { return {1, 0}; }

  bool is_zero() const { return zero_; }
  std::int64_t numerator() const { return numerator_; }
  std::int64_t denominator() const { return zero_ ? 0 : ledger().sets_[set_].degree; }

  friend Degree operator+(const Degree& a, const Degree& b) { return sum(a, b); }
  friend Degree operator-(const Degree& a, const Degree& b) { return a + b; }
  friend Degree operator-(const Degree& a) { return a; }
  friend Degree operator*(const Degree& a, const Degree& b) { return product(a, b); }
  // Throws std::domain_error for a divisor that is 0 everywhere.
  friend Degree operator/(const Degree& a, const Degree& b) { return quotient_of(a, b); }

 private:
  Degree(std::int64_t numerator, std::size_t set)
      : numerator_(numerator), set_(set), serial_(++ledger().serial_), zero_(false) {}
  static Degree sum(const Degree& a, const Degree& b) {
    if (a.zero_) return b;
    if (b.zero_) return a;
    Ledger& ledger = Degree::ledger();
    const std::size_t common = ledger.combined(a.set_, b.set_, false);
    const std::int64_t degree = ledger.sets_[common].degree;
    return {std::max(a.numerator_ + degree - ledger.sets_[a.set_].degree,
                     b.numerator_ + degree - ledger.sets_[b.set_].degree),
            common};
  }
  static Degree product(const Degree& a, const Degree& b) {
    if (a.zero_ || b.zero_) return Degree();
    return {a.numerator_ + b.numerator_, ledger().combined(a.set_, b.set_, true)};
  }
  // x / (N / D) = x D / N.
  static Degree quotient_of(const Degree& a, const Degree& b) {
    if (b.zero_) throw std::domain_error("division by what is 0 everywhere");
    if (a.zero_) return a;
    Ledger& ledger = Degree::ledger();
    if (b.serial_ == 0 && b.numerator_ == 0 && b.set_ == 0) return a;  // by a constant
    ledger.degrees_.emplace(b.serial_, b.numerator_);
    const std::size_t factor = ledger.of({{b.serial_, 1}});
    return {a.numerator_ + ledger.sets_[b.set_].degree, ledger.combined(a.set_, factor, true)};
  }
  static Ledger& ledger() { return *Ledger::current; }

  std::int64_t numerator_ = 0;
  std::size_t set_ = 0;
  std::uint64_t serial_ = 0;  // copies of a number are the same divisor; 0: a constant
  bool zero_ = true;
};

template <>
struct PowerOfTen<Degree> {
  static Degree of(int) { return Degree(1); }
};

inline bool vanishes(const Degree& x) { return x.is_zero(); }

// A random point is generic: it lies on no cut.
inline Branch branch(const Degree&, int) { return Branch::divide; }

}  // namespace fractus::oracle
