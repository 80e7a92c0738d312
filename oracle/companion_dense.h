// Large matrices of Companions, and their products: one of the values in the base, one of the bounds in a narrower
// type that is then enlarged by more than its own roundings. The products of libraries run at a hundred times the speed
// of a loop over Companions.
#pragma once

#include <type_traits>
#include <vector>

#include "oracle/companion_row.h"
#include "oracle/dense.h"

namespace fractus::oracle {

// Bounds are of interest to a few digits.
template <DType judged>
using Bound = std::conditional_t<judged == DType::float32, float, double>;

// Inputs: exact, with n = e = 0 and m = |v|. The values are borrowed, row by row.
template <DType judged>
struct Leaves {
  const double* values = nullptr;
  std::size_t row_count = 0, column_count = 0;

  std::size_t rows() const { return row_count; }
  std::size_t columns() const { return column_count; }
};
template <DType judged>
struct InputOf<Companion<judged>> {
  using type = Leaves<judged>;
};

// What a kernel has stored: n = 0 and m = |v|, so e is all of the error; infinity where there is no bound. As a result
// of a product e is the bound itself, with all that its own computation may have lost.
template <DType judged>
struct Stored {
  std::size_t row_count = 0, column_count = 0;
  std::vector<Base<judged>> v;
  std::vector<double> e;

  Stored(std::size_t rows, std::size_t columns, int threads);
  std::size_t rows() const { return row_count; }
  std::size_t columns() const { return column_count; }
  Row<Companion<judged>> row(std::size_t r) const;
};

// n and w are one number for each row. A bound below 2^-280 in float32 is stored as 0: products count an underflow
// that is far larger.
template <DType judged>
class Dense<Companion<judged>> {
 public:
  Dense(std::size_t rows, std::size_t columns);

  std::size_t rows() const { return n.size(); }
  std::size_t columns() const { return columns_; }
  Row<Companion<judged>> row(std::size_t r) const;
  void set_row(std::size_t r, const Row<Companion<judged>>& x);

  std::vector<Base<judged>> v;
  std::vector<Bound<judged>> m, e;
  std::vector<double> n, w;

 private:
  std::size_t columns_;
};

// a b^T. Where no order of the sum of products rounds, e is 0: all terms are multiples of the product of the grids of
// a's row and b's row, and together at most 2^p of it (lattice.h). A kernel that scales a or b first has no such grid:
// with Sums::rounded e counts roundings everywhere.
enum class Sums { exact_where_certain, rounded };
template <DType judged>
Stored<judged> times_transposed(const Leaves<judged>& a, const Leaves<judged>& b, int threads,
                                Sums sums = Sums::exact_where_certain);

// a b and a^T b
template <DType judged>
Stored<judged> times(const Dense<Companion<judged>>& a, const Leaves<judged>& b, std::size_t additions, int threads);
template <DType judged>
Stored<judged> transposed_times(const Dense<Companion<judged>>& a, const Leaves<judged>& b, int threads);

// a^T b where both carry errors: the gradient of a matrix, a sum over the rows.
template <DType judged>
Stored<judged> transposed_times(const Dense<Companion<judged>>& a, const Dense<Companion<judged>>& b, int threads);

// a b and a b^T on the calling thread, still polynomials: m, n and e go on, so that what a further product makes of
// them is bounded in every association, a kernel's that contracts two matrices of leaves first included.
template <DType judged>
Dense<Companion<judged>> open_times(const Dense<Companion<judged>>& a, const Leaves<judged>& b);
template <DType judged>
Dense<Companion<judged>> open_times_transposed(const Dense<Companion<judged>>& a, const Leaves<judged>& b);

}  // namespace fractus::oracle
