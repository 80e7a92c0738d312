// Rows of Companions, one array per component: v, m and e are contiguous, n and w are one number for the whole row
// (the largest in it, so the bound only widens). These loops are where the oracle spends its time.
#pragma once

#include <vector>

#include "oracle/companion.h"
#include "oracle/row.h"

namespace fractus::oracle {

template <DType judged>
class Row<Companion<judged>> {
 public:
  Row() = default;
  explicit Row(std::size_t size) : v(size), m(size), e(size) {}

  std::size_t size() const { return v.size(); }
  Companion<judged> get(std::size_t i) const { return {v[i], m[i], n, e[i], w}; }
  void set(std::size_t i, const Companion<judged>& x) {
    v[i] = x.v;
    m[i] = x.m;
    e[i] = x.e;
    n = std::max(n, x.n);
    w = std::max(w, x.w);
  }

  std::vector<Base<judged>> v;
  std::vector<double> m, e;
  double n = 0, w = 0;
};

template <DType judged>
Row<Companion<judged>> leaves_of(const double* values, std::size_t count) {
  Row<Companion<judged>> row(count);
  for (std::size_t i = 0; i < count; ++i) row.set(i, Companion<judged>(values[i]));
  return row;
}

template <DType judged>
void may_add(Row<Companion<judged>>& x, std::size_t terms) {
  x.n += static_cast<double>(terms);
}

template <DType judged>
void add(Row<Companion<judged>>& y, const Row<Companion<judged>>& x) {
  const std::size_t size = y.size();
  for (std::size_t i = 0; i < size; ++i) y.v[i] += x.v[i];
  double* __restrict ym = y.m.data();
  double* __restrict ye = y.e.data();
  const double* xm = x.m.data();
  const double* xe = x.e.data();
#pragma omp simd
  for (std::size_t i = 0; i < size; ++i) {
    ym[i] += xm[i];
    ye[i] += xe[i];
  }
  y.n = std::max(y.n, x.n) + 1;
  y.w = std::max(y.w, x.w);
}

template <DType judged>
void add_product(Row<Companion<judged>>& y, const Companion<judged>& a, const Row<Companion<judged>>& x) {
  const std::size_t size = y.size();
  const double floor = underflow<judged>(a.w, x.w);
  Base<judged>* __restrict yv = y.v.data();
  double* __restrict ym = y.m.data();
  double* __restrict ye = y.e.data();
  const Base<judged>* xv = x.v.data();
  const double* xm = x.m.data();
  const double* xe = x.e.data();
  const Base<judged> av = a.v;
  const double am = a.m, ae = a.e;
#pragma omp simd
  for (std::size_t i = 0; i < size; ++i) yv[i] += av * xv[i];
  if (ae == 0) {
#pragma omp simd
    for (std::size_t i = 0; i < size; ++i) {
      ym[i] += am * xm[i];
      ye[i] += am * xe[i] + floor;
    }
  } else {
#pragma omp simd
    for (std::size_t i = 0; i < size; ++i) {
      ym[i] += am * xm[i];
      ye[i] += am * xe[i] + ae * (xm[i] + xe[i]) + floor;
    }
  }
  y.n = std::max(y.n, a.n + x.n + 1) + 1;
  y.w = std::max({y.w, a.w, x.w});
}

template <DType judged>
Companion<judged> dot(const Row<Companion<judged>>& x, const Row<Companion<judged>>& y) {
  const std::size_t size = x.size();
  const Base<judged>*xv = x.v.data(), *yv = y.v.data();
  const double *xm = x.m.data(), *ym = y.m.data(), *xe = x.e.data(), *ye = y.e.data();
  Base<judged> v = 0;
  double m = 0, e = 0;
  if constexpr (judged == DType::float32) {
#pragma omp simd reduction(+ : v)
    for (std::size_t i = 0; i < size; ++i) v += xv[i] * yv[i];
  } else {
    for (std::size_t i = 0; i < size; ++i) v += xv[i] * yv[i];
  }
#pragma omp simd reduction(+ : m, e)
  for (std::size_t i = 0; i < size; ++i) {
    m += xm[i] * ym[i];
    e += xe[i] * (ym[i] + ye[i]) + xm[i] * ye[i];
  }
  e += static_cast<double>(size) * underflow<judged>(x.w, y.w);
  return {v, m, x.n + y.n + 1 + static_cast<double>(size), e, std::max(x.w, y.w)};
}

template <DType judged>
Row<Companion<judged>> quotient(const Row<Companion<judged>>& x, const Companion<judged>& den) {
  const Denominator<judged> denominator(den);
  Row<Companion<judged>> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result.set(i, x.get(i) / denominator);
  return result;
}

// Both x and 0 lie within |v|/2 of x/2. m and n stay those of x: a kernel that divides last has roundings to come on
// every one of its terms, however far these cancel in v. base_slack of the half is room for the radius of an interval
// this wide, so that its ends are decided.
template <DType judged>
Row<Companion<judged>> hull_with_zero(const Row<Companion<judged>>& x) {
  Row<Companion<judged>> hull(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Companion<judged> number = x.get(i);
    const double half = magnitude(number.v) / 2;
    hull.set(i, {number.v / 2, number.m, number.n, number.e + half * (1 + base_slack), number.w});
  }
  return hull;
}

}  // namespace fractus::oracle
