#include "oracle/companion_dense.h"

#include <bit>
#include <limits>

#include "oracle/large_vector.h"
#include "oracle/multiply.h"
#include "oracle/parallel.h"

namespace fractus::oracle {
namespace {

constexpr std::size_t block_size = 512;  // rows of the vocabulary at a time: their bounds stay in the cache

std::size_t blocks_of(std::size_t size) { return (size + block_size - 1) / block_size; }

// The computed sum of K products of nonnegative terms, in any order, is at least 1 - gamma(K) of the true one (Higham,
// 3.1); where products or terms fall below the normal range, each loses at most that. 4 roundings more are for the
// terms and for the enlargement itself, 2^-29 for what e was summed up from in double. What is too large to say
// anything, or no number, is no bound.
template <class B>
class Enlarged {
 public:
  // `floor` is added to every sum.
  Enlarged(std::size_t K, double floor)
      : share_(2 * (static_cast<double>(K) + 4) * static_cast<double>(std::numeric_limits<B>::epsilon()) / 2),
        factor_((1 + 0x1p-29) / (1 - share_)),
        floor_(static_cast<double>(K) * static_cast<double>(std::numeric_limits<B>::min()) * 2 + floor),
        end_(share_ < 0.5 ? 1e100 : 0) {}
  double operator()(B computed) const {
    const double bound = static_cast<double>(computed) * factor_ + floor_;
    return bound < end_ ? bound : std::numeric_limits<double>::infinity();
  }

 private:
  double share_, factor_, floor_, end_;
};

// A bound in its own type, not below x.
template <class B>
B rounded_up(double x) {
  if constexpr (std::is_same_v<B, double>) return x;
  if (x < 0x1p-280) return 0;
  return std::max(static_cast<B>(x * (1 + 0x1p-22)), std::numeric_limits<B>::min());
}

// Values in the base: as they lie where that is double, else a copy.
template <DType judged>
class InBase {
 public:
  InBase(const double* values, std::size_t rows, std::size_t columns) : rows_(rows), columns_(columns) {
    if constexpr (std::is_same_v<Base<judged>, double>)
      data_ = values;
    else
      data_ = (copy_ = std::vector<Base<judged>>(values, values + rows * columns)).data();
  }
  Block<Base<judged>> block(bool transposed = false) const { return {data_, rows_, columns_, columns_, transposed}; }

 private:
  std::size_t rows_, columns_;
  std::vector<Base<judged>> copy_;
  const Base<judged>* data_;
};

// The grid of a row: what the last bit that is set in any of its entries is worth; infinity where all are 0. It is 0,
// which certifies nothing, where an entry lies below 2^-970, and where it is less than `least`: the scan ends there.
double grid_of(const double* x, std::size_t columns, double least) {
  constexpr std::size_t at_once = 64;
  double grid = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0; first < columns; first += at_once) {
#pragma omp simd reduction(min : grid)
    for (std::size_t c = first; c < std::min(columns, first + at_once); ++c) {
      const auto bits = std::bit_cast<std::uint64_t>(x[c]);
      const std::uint64_t exponent = bits >> 52 & 0x7ff,
                          significand = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
      const auto last = static_cast<std::int64_t>(significand & -significand);
      // 2^(exponent - 1075), the worth of the significand's lowest bit
      const double unit = exponent > 52 ? std::bit_cast<double>((exponent - 52) << 52) : 0;
      const double worth = x[c] == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(last) * unit;
      grid = std::min(grid, worth);
    }
    if (grid < least) return 0;
  }
  return grid;
}

// Magnitudes of leaves as bounds, and the largest of them; the grids of their rows where they are asked for.
template <DType judged>
struct Magnitudes {
  std::vector<Bound<judged>> values;
  std::vector<double> grids;
  double most = 0;
  std::size_t rows, columns;

  Magnitudes(const double* x, std::size_t rows, std::size_t columns, bool with_grids)
      : values(rows * columns), grids(with_grids ? rows : 0), rows(rows), columns(columns) {
    for (std::size_t r = 0; r < rows; ++r, x += columns) {
      Bound<judged>* to = values.data() + r * columns;
      double largest = 0;
#pragma omp simd reduction(max : largest)
      for (std::size_t c = 0; c < columns; ++c) {
        const double magnitude = std::fabs(x[c]);
        to[c] = static_cast<Bound<judged>>(magnitude);
        largest = std::max(largest, magnitude);
      }
      most = std::max(most, largest);
      // A term of the largest entry is at least that many grids of the other factor: beyond 2^p no sum is certified.
      if (with_grids) grids[r] = grid_of(x, columns, std::ldexp(largest, -significand_bits(judged)));
    }
  }
  Block<Bound<judged>> block(bool transposed = false) const {
    return {values.data(), rows, columns, columns, transposed};
  }
};

// The bounds of a block of columns with the roundings that the product adds: gamma(n) (m + e) + e.
template <DType judged>
std::vector<Bound<judged>> errors_of(const Dense<Companion<judged>>& a, std::size_t first, std::size_t columns,
                                     double additions) {
  using B = Bound<judged>;
  std::vector<B> result(a.rows() * columns);
  for (std::size_t r = 0; r < a.rows(); ++r) {
    const B factor = rounded_up<B>(gamma<judged>(a.n[r] + 1 + additions));
    const B* m = a.m.data() + r * a.columns() + first;
    const B* e = a.e.data() + r * a.columns() + first;
    B* to = result.data() + r * columns;
#pragma omp simd
    for (std::size_t c = 0; c < columns; ++c) to[c] = factor * (m[c] + e[c]) + e[c];  // 3 roundings, see Enlarged
  }
  return result;
}

// What is inherited from a bound: 0 where there is nothing, and most rows of leaves have nothing.
template <class B>
bool all_zero(const std::vector<B>& x) {
  return std::all_of(x.begin(), x.end(), [](B value) { return value == 0; });
}

// To add a product with 0 rounds nothing: the longest chain of additions in a sum over a column (or a row) of b is as
// long as the fullest of them.
template <DType judged>
std::size_t most_terms(const Leaves<judged>& b, bool transposed) {
  std::vector<std::size_t> of_column(b.columns());
  std::size_t in_row = 0;
  for (std::size_t r = 0; r < b.rows(); ++r) {
    const double* x = b.values + r * b.columns();
    std::size_t count = 0;
    for (std::size_t c = 0; c < b.columns(); ++c) {
      count += x[c] != 0;
      of_column[c] += x[c] != 0;
    }
    in_row = std::max(in_row, count);
  }
  if (transposed || of_column.empty()) return in_row;
  return *std::max_element(of_column.begin(), of_column.end());
}

template <DType judged>
Dense<Companion<judged>> open_product(const Dense<Companion<judged>>& a, const Leaves<judged>& b, bool transposed) {
  using B = Bound<judged>;
  const std::size_t N = a.rows(), K = a.columns(), M = transposed ? b.rows() : b.columns();
  Dense<Companion<judged>> result(N, M);
  const InBase<judged> values(b.values, b.rows(), b.columns());
  const Magnitudes<judged> magnitudes(b.values, b.rows(), b.columns(), false);
  multiply_add({a.v.data(), N, K, K}, values.block(transposed), result.v.data(), M);
  multiply_add({a.m.data(), N, K, K}, magnitudes.block(transposed), result.m.data(), M);
  if (!all_zero(a.e)) multiply_add({a.e.data(), N, K, K}, magnitudes.block(transposed), result.e.data(), M);
  const auto terms = static_cast<double>(most_terms(b, transposed));
  const Enlarged<B> enlarged(K, 0);
  for (std::size_t r = 0; r < N; ++r) {
    const double floor = static_cast<double>(K) * underflow<judged>(a.w[r], magnitudes.most);
    for (std::size_t i = r * M; i < (r + 1) * M; ++i) {
      result.m[i] = rounded_up<B>(enlarged(result.m[i]));
      result.e[i] = rounded_up<B>(enlarged(result.e[i]) + floor);
    }
    result.n[r] = a.n[r] + 1 + terms;
    result.w[r] = std::max(a.w[r], magnitudes.most);
  }
  return result;
}

double largest_of(const std::vector<double>& x) { return x.empty() ? 0 : *std::max_element(x.begin(), x.end()); }

}  // namespace

template <DType judged>
Stored<judged>::Stored(std::size_t rows, std::size_t columns, int threads) : row_count(rows), column_count(columns) {
  for_each(2, threads, [&](std::size_t i) {
    if (i == 0)
      v = large_vector<Base<judged>>(rows * columns);
    else
      e = large_vector<double>(rows * columns);
  });
}

template <DType judged>
Row<Companion<judged>> Stored<judged>::row(std::size_t r) const {
  Row<Companion<judged>> result(column_count);
  std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(r * column_count), column_count, result.v.begin());
  std::copy_n(e.begin() + static_cast<std::ptrdiff_t>(r * column_count), column_count, result.e.begin());
  for (std::size_t c = 0; c < column_count; ++c) {
    result.m[c] = magnitude(result.v[c]);
    result.w = std::max(result.w, result.m[c]);
  }
  return result;
}

template <DType judged>
Dense<Companion<judged>>::Dense(std::size_t rows, std::size_t columns)
    : v(large_vector<Base<judged>>(rows * columns)),
      m(large_vector<Bound<judged>>(rows * columns)),
      e(large_vector<Bound<judged>>(rows * columns)),
      n(rows),
      w(rows),
      columns_(columns) {}

template <DType judged>
Row<Companion<judged>> Dense<Companion<judged>>::row(std::size_t r) const {
  Row<Companion<judged>> result(columns_);
  std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(r * columns_), columns_, result.v.begin());
  std::copy_n(m.begin() + static_cast<std::ptrdiff_t>(r * columns_), columns_, result.m.begin());
  std::copy_n(e.begin() + static_cast<std::ptrdiff_t>(r * columns_), columns_, result.e.begin());
  result.n = n[r];
  result.w = w[r];
  return result;
}

template <DType judged>
void Dense<Companion<judged>>::set_row(std::size_t r, const Row<Companion<judged>>& x) {
  for (std::size_t c = 0; c < columns_; ++c) {
    v[r * columns_ + c] = x.v[c];
    m[r * columns_ + c] = rounded_up<Bound<judged>>(x.m[c]);
    e[r * columns_ + c] = rounded_up<Bound<judged>>(x.e[c]);
  }
  n[r] = x.n;
  w[r] = x.w;
}

template <DType judged>
Stored<judged> times_transposed(const Leaves<judged>& a, const Leaves<judged>& b, int threads, Sums sums) {
  using B = Bound<judged>;
  const std::size_t N = a.rows(), M = b.rows(), K = a.columns();
  Stored<judged> result(N, M, threads);
  const InBase<judged> a_base(a.values, N, K);
  const Magnitudes<judged> a_bound(a.values, N, K, true);
  const double roundings = gamma<judged>(static_cast<double>(K) + 1);
  const double significand_end = sums == Sums::rounded ? 0 : std::ldexp(1.0, significand_bits(judged));
  const Enlarged<B> enlarged(K, 0);
  for_each(blocks_of(M), threads, [&](std::size_t i) {
    const std::size_t first = i * block_size, count = std::min(block_size, M - first);
    const double* values = b.values + first * K;
    multiply_add(a_base.block(), InBase<judged>(values, count, K).block(true), result.v.data() + first, M);
    const Magnitudes<judged> b_bound(values, count, K, true);
    std::vector<B> bound(N * count);
    multiply_add(a_bound.block(), b_bound.block(true), bound.data(), count);
    const double floor = static_cast<double>(K) * underflow<judged>(a_bound.most, b_bound.most);
    for (std::size_t r = 0; r < N; ++r) {
      double* to = result.e.data() + r * M + first;
      for (std::size_t c = 0; c < count; ++c) {
        // Underflow of the product of grids to 0, or a sum without a bound, is no certificate; a row of zeros is one.
        const double grid = a_bound.grids[r] * b_bound.grids[c], m = enlarged(bound[r * count + c]);
        const bool exact = a_bound.grids[r] > std::numeric_limits<double>::max() ||
                           (grid >= smallest_subnormal(judged) && m <= grid * significand_end && m < unbounded);
        to[c] = exact ? 0 : roundings * m + floor;
      }
    }
  });
  return result;
}

// The columns of a are cut into as many parts as there are, whatever the threads, and the parts added in order.
template <DType judged>
Stored<judged> times(const Dense<Companion<judged>>& a, const Leaves<judged>& b, std::size_t additions, int threads) {
  using B = Bound<judged>;
  constexpr std::size_t most_parts = 16;
  const std::size_t N = a.rows(), K = a.columns(), M = b.columns();
  const std::size_t blocks = blocks_of(K), parts = std::min(blocks, most_parts);
  struct Part {
    std::vector<Base<judged>> v;
    std::vector<B> bound;
    double most = 0;
  };
  std::vector<Part> sums(parts);
  for_each(parts, threads, [&](std::size_t part) {
    Part& sum = sums[part];
    sum.v.resize(N * M);
    sum.bound.resize(N * M);
    for (std::size_t i = blocks * part / parts; i < blocks * (part + 1) / parts; ++i) {
      const std::size_t first = i * block_size, count = std::min(block_size, K - first);
      const double* values = b.values + first * M;
      multiply_add({a.v.data() + first, N, count, K}, InBase<judged>(values, count, M).block(), sum.v.data(), M);
      const Magnitudes<judged> b_bound(values, count, M, false);
      const std::vector<B> errors = errors_of(a, first, count, static_cast<double>(additions));
      multiply_add({errors.data(), N, count, count}, b_bound.block(), sum.bound.data(), M);
      sum.most = std::max(sum.most, b_bound.most);
    }
  });
  Stored<judged> result(N, M, threads);
  double most = 0;
  for (const Part& sum : sums) most = std::max(most, sum.most);
  const Enlarged<B> enlarged(K + parts, static_cast<double>(K) * underflow<judged>(largest_of(a.w), most));
  for (std::size_t i = 0; i < N * M; ++i) {
    B bound = 0;
    for (const Part& sum : sums) {
      result.v[i] += sum.v[i];
      bound += sum.bound[i];
    }
    result.e[i] = enlarged(bound);
  }
  return result;
}

template <DType judged>
Stored<judged> transposed_times(const Dense<Companion<judged>>& a, const Leaves<judged>& b, int threads) {
  using B = Bound<judged>;
  const std::size_t K = a.rows(), N = a.columns(), M = b.columns();
  Stored<judged> result(N, M, threads);
  const InBase<judged> b_base(b.values, K, M);
  const Magnitudes<judged> b_bound(b.values, K, M, false);
  const Enlarged<B> enlarged(K, static_cast<double>(K) * underflow<judged>(largest_of(a.w), b_bound.most));
  for_each(blocks_of(N), threads, [&](std::size_t i) {
    const std::size_t first = i * block_size, count = std::min(block_size, N - first);
    multiply_add({a.v.data() + first, K, count, N, true}, b_base.block(), result.v.data() + first * M, M);
    const std::vector<B> errors = errors_of(a, first, count, static_cast<double>(K));
    std::vector<B> bound(count * M);
    multiply_add({errors.data(), K, count, count, true}, b_bound.block(), bound.data(), M);
    for (std::size_t j = 0; j < count * M; ++j) result.e[first * M + j] = enlarged(bound[j]);
  });
  return result;
}

// error = gamma (m + e) + e, where m + e = (m_a + e_a)(m_b + e_b) and e = e_a (m_b + e_b) + m_a e_b, is
// (gamma (m_a + e_a) + e_a)(m_b + e_b) + m_a e_b: two products, gamma of each row's own n in the first.
template <DType judged>
Stored<judged> transposed_times(const Dense<Companion<judged>>& a, const Dense<Companion<judged>>& b, int threads) {
  using B = Bound<judged>;
  const std::size_t K = a.rows(), N = a.columns(), M = b.columns();
  Stored<judged> result(N, M, threads);
  std::vector<B> other(b.m);
  double floor = 0, most_n = 0;
  for (std::size_t i = 0; i < other.size(); ++i) other[i] += b.e[i];
  for (std::size_t k = 0; k < K; ++k) {
    floor += underflow<judged>(a.w[k], b.w[k]);
    most_n = std::max(most_n, b.n[k]);
  }
  const bool inherits = !all_zero(b.e);
  const Enlarged<B> enlarged(2 * K + 1, floor);
  for_each(blocks_of(N), threads, [&](std::size_t i) {
    const std::size_t first = i * block_size, count = std::min(block_size, N - first);
    multiply_add({a.v.data() + first, K, count, N, true}, {b.v.data(), K, M, M}, result.v.data() + first * M, M);
    const std::vector<B> errors = errors_of(a, first, count, most_n + static_cast<double>(K));
    std::vector<B> bound(count * M);
    multiply_add({errors.data(), K, count, count, true}, {other.data(), K, M, M}, bound.data(), M);
    if (inherits) multiply_add({a.m.data() + first, K, count, N, true}, {b.e.data(), K, M, M}, bound.data(), M);
    for (std::size_t j = 0; j < count * M; ++j) result.e[first * M + j] = enlarged(bound[j]);
  });
  return result;
}

template <DType judged>
Dense<Companion<judged>> open_times(const Dense<Companion<judged>>& a, const Leaves<judged>& b) {
  return open_product(a, b, false);
}
template <DType judged>
Dense<Companion<judged>> open_times_transposed(const Dense<Companion<judged>>& a, const Leaves<judged>& b) {
  return open_product(a, b, true);
}

template struct Stored<DType::float32>;
template struct Stored<DType::float64>;
template class Dense<Companion<DType::float32>>;
template class Dense<Companion<DType::float64>>;
template Stored<DType::float32> times_transposed(const Leaves<DType::float32>&, const Leaves<DType::float32>&, int,
                                                 Sums);
template Stored<DType::float64> times_transposed(const Leaves<DType::float64>&, const Leaves<DType::float64>&, int,
                                                 Sums);
template Stored<DType::float32> times(const Dense<Companion<DType::float32>>&, const Leaves<DType::float32>&,
                                      std::size_t, int);
template Stored<DType::float64> times(const Dense<Companion<DType::float64>>&, const Leaves<DType::float64>&,
                                      std::size_t, int);
template Stored<DType::float32> transposed_times(const Dense<Companion<DType::float32>>&, const Leaves<DType::float32>&,
                                                 int);
template Stored<DType::float64> transposed_times(const Dense<Companion<DType::float64>>&, const Leaves<DType::float64>&,
                                                 int);
template Stored<DType::float32> transposed_times(const Dense<Companion<DType::float32>>&,
                                                 const Dense<Companion<DType::float32>>&, int);
template Stored<DType::float64> transposed_times(const Dense<Companion<DType::float64>>&,
                                                 const Dense<Companion<DType::float64>>&, int);
template Dense<Companion<DType::float32>> open_times(const Dense<Companion<DType::float32>>&,
                                                     const Leaves<DType::float32>&);
template Dense<Companion<DType::float64>> open_times(const Dense<Companion<DType::float64>>&,
                                                     const Leaves<DType::float64>&);
template Dense<Companion<DType::float32>> open_times_transposed(const Dense<Companion<DType::float32>>&,
                                                                const Leaves<DType::float32>&);
template Dense<Companion<DType::float64>> open_times_transposed(const Dense<Companion<DType::float64>>&,
                                                                const Leaves<DType::float64>&);

}  // namespace fractus::oracle
