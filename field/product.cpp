// Tiles of the result, each from a few products of float64 matrices by torch's BLAS. A tile's pieces stay in the cache
// of the core that works on it.
#include "field/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "field/slots.h"

namespace fractus::field {
namespace {

constexpr std::int64_t tile_rows = 128, tile_columns = 128, tile_depth = 256;

// A residue as a number nearest to 0: |x| < 2^(bits-1).
template <class F>
std::int64_t balanced(std::int64_t x) {
  constexpr auto p = static_cast<std::int64_t>(F::p);
  return x > p / 2 ? x - p : x;
}

// x = low + high 2^k with |low| <= 2^(k-1).
struct Halves {
  std::int64_t low, high;
};
inline Halves halved(std::int64_t x, int k) {
  const std::int64_t high = (x + (std::int64_t{1} << (k - 1))) >> k;
  return {x - (high << k), high};
}

// A number of |x| <= 2^bound as a residue, where 2^bound <= p 2^j for a j that makes the sum positive.
template <class F>
std::uint64_t residue_of(std::int64_t x);
// |x| <= 2^53 = 2^22 2^31 < p 2^23, and the sum is below 2^55.
template <>
inline std::uint64_t residue_of<Prime<31>>(std::int64_t x) {
  return Prime<31>::reduced(Prime<31>::reduced(static_cast<std::uint64_t>(x + (std::int64_t{2147483647} << 23))));
}
// |x| < p.
template <>
inline std::uint64_t residue_of<Prime<61>>(std::int64_t x) {
  return static_cast<std::uint64_t>(x < 0 ? x + static_cast<std::int64_t>(Prime<61>::p) : x);
}

template <class F>
struct Pieces;

// GF(2^31-1): a whole, |a| < 2^30, and b = b0 + b1 2^15 with |b0| <= 2^14, |b1| <= 2^15. A sum of 256 products is at
// most 2^8 2^30 2^15 = 2^53 in magnitude, as is each of its partial sums, in any order: float64 holds it exactly.
template <>
struct Pieces<Prime<31>> {
  using F = Prime<31>;
  static constexpr int left = 1, right = 2, products = 2;
  static constexpr int factors[products][2] = {{0, 0}, {0, 1}};
  static_assert(tile_depth <= 256);

  static void split_left(std::int64_t x, double* to, std::int64_t) { to[0] = static_cast<double>(balanced<F>(x)); }
  static void split_right(std::int64_t x, double* to, std::int64_t plane) {
    const Halves b = halved(balanced<F>(x), 15);
    to[0] = static_cast<double>(b.low), to[plane] = static_cast<double>(b.high);
  }
  static std::uint64_t joined(const double* of, std::int64_t plane) {
    const auto low = static_cast<std::int64_t>(of[0]), high = static_cast<std::int64_t>(of[plane]);
    return F::add(residue_of<F>(low), F::shifted(residue_of<F>(high), 15));
  }
};

// GF(2^61-1): x = x0 + x1 2^20 + x2 2^40 with |x0|, |x1| <= 2^19 and |x2| <= 2^20, since |x| < 2^60. Karatsuba's six
// products of pieces and of sums of two pieces, |x0+x1| <= 2^20 and |x0+x2|, |x1+x2| <= 3 2^19: a sum of 256 products
// is at most 2^8 (3 2^19)^2 < 2^50, so float64 holds it and every partial sum exactly.
template <>
struct Pieces<Prime<61>> {
  using F = Prime<61>;
  static constexpr int left = 6, right = 6, products = 6;
  static constexpr int factors[products][2] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}};
  static_assert(tile_depth <= 2048);

  static void split_left(std::int64_t x, double* to, std::int64_t plane) {
    const Halves lower = halved(balanced<F>(x), 20), upper = halved(lower.high, 20);
    const auto x0 = static_cast<double>(lower.low), x1 = static_cast<double>(upper.low),
               x2 = static_cast<double>(upper.high);
    to[0] = x0, to[plane] = x1, to[2 * plane] = x2;
    to[3 * plane] = x0 + x1, to[4 * plane] = x0 + x2, to[5 * plane] = x1 + x2;
  }
  static void split_right(std::int64_t x, double* to, std::int64_t plane) { split_left(x, to, plane); }
  static std::uint64_t joined(const double* of, std::int64_t plane) {
    const auto at = [&](int i) { return static_cast<std::int64_t>(of[i * plane]); };
    const std::int64_t p00 = at(0), p11 = at(1), p22 = at(2);
    const std::int64_t c1 = at(3) - p00 - p11, c2 = at(4) - p00 - p22 + p11, c3 = at(5) - p11 - p22;
    // c1 2^20 + ... + p22 2^80, each a residue below 2^61: five of them stay below 2^64.
    return F::reduced(residue_of<F>(p00) + F::shifted(residue_of<F>(c1), 20) + F::shifted(residue_of<F>(c2), 40) +
                      F::shifted(residue_of<F>(c3), 60) + F::shifted(residue_of<F>(p22), 19));
  }
};

// Memory of one thread for the pieces of its tiles, one after the other: fresh memory for each would cost page faults.
struct Workspace {
  at::Tensor left, right, products;
};

at::Tensor memory(std::int64_t count) { return at::empty({count}, at::TensorOptions().dtype(at::kDouble)); }

// The first of it, as so many matrices.
at::Tensor planes(const at::Tensor& memory, int count, std::int64_t rows, std::int64_t columns) {
  return memory.narrow(0, 0, count * rows * columns).view({count, rows, columns});
}

template <class Slot, class Split>
void split(const at::Tensor& of, at::Tensor& to, const Split& piece) {
  const std::int64_t rows = of.size(0), columns = of.size(1), plane = rows * columns;
  const std::int64_t row_stride = of.stride(0), column_stride = of.stride(1);
  const Slot* const from = of.const_data_ptr<Slot>();
  double* const pieces = to.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < rows; ++i) {
    const Slot* const row = from + i * row_stride;
    double* const target = pieces + i * columns;
    if (column_stride == 1) {
#pragma GCC ivdep  // planes do not overlap
      for (std::int64_t j = 0; j < columns; ++j) piece(row[j], target + j, plane);
    } else {
      for (std::int64_t j = 0; j < columns; ++j) piece(row[j * column_stride], target + j, plane);
    }
  }
}

// Adds a (rows, depth) times b (depth, columns) to the residues in `to`, dense.
template <class F, class Slot>
void add_product(const at::Tensor& a, const at::Tensor& b, const Workspace& space, Slot* to, std::int64_t to_stride) {
  using P = Pieces<F>;
  const std::int64_t rows = a.size(0), depth = a.size(1), columns = b.size(1), plane = rows * columns;
  at::Tensor left = planes(space.left, P::left, rows, depth), right = planes(space.right, P::right, depth, columns);
  split<Slot>(a, left, [](std::int64_t x, double* at, std::int64_t stride) { P::split_left(x, at, stride); });
  split<Slot>(b, right, [](std::int64_t x, double* at, std::int64_t stride) { P::split_right(x, at, stride); });
  at::Tensor products = planes(space.products, P::products, rows, columns);
  for (int i = 0; i < P::products; ++i) {
    at::Tensor one = products[i];
    at::mm_out(one, left[P::factors[i][0]], right[P::factors[i][1]]);
  }
  const double* const of = products.const_data_ptr<double>();
  for (std::int64_t i = 0; i < rows; ++i) {
#pragma GCC ivdep  // nor do products and sums
    for (std::int64_t j = 0; j < columns; ++j) {
      Slot& sum = to[i * to_stride + j];
      sum = static_cast<Slot>(F::add(static_cast<std::uint64_t>(sum), P::joined(of + i * columns + j, plane)));
    }
  }
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const std::int64_t batch = a.size(0), rows = a.size(1), depth = a.size(2), columns = b.size(2);
  at::Tensor result = at::zeros({batch, rows, columns}, a.options());
  if (result.numel() == 0 || depth == 0) return result;
  const std::int64_t row_tiles = (rows + tile_rows - 1) / tile_rows,
                     column_tiles = (columns + tile_columns - 1) / tile_columns;
  with_slots(a.scalar_type(), [&]<class F, class Slot>(F, Slot) {
    // Another thread pays from about 2^18 products on.
    const std::int64_t work = std::min(rows, tile_rows) * std::min(columns, tile_columns) * depth;
    const std::int64_t together = std::max<std::int64_t>(1, (std::int64_t{1} << 18) / work);
    at::parallel_for(0, batch * row_tiles * column_tiles, together, [&](std::int64_t begin, std::int64_t end) {
      using P = Pieces<F>;
      const std::int64_t most_rows = std::min(rows, tile_rows), most_columns = std::min(columns, tile_columns);
      const std::int64_t most_depth = std::min(depth, tile_depth);
      const Workspace space{memory(P::left * most_rows * most_depth), memory(P::right * most_depth * most_columns),
                            memory(P::products * most_rows * most_columns)};
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t column = tile % column_tiles * tile_columns, rest = tile / column_tiles;
        const std::int64_t row = rest % row_tiles * tile_rows, which = rest / row_tiles;
        const std::int64_t height = std::min(tile_rows, rows - row), width = std::min(tile_columns, columns - column);
        Slot* const to = result.mutable_data_ptr<Slot>() + (which * rows + row) * columns + column;
        for (std::int64_t k = 0; k < depth; k += tile_depth) {
          const std::int64_t part = std::min(tile_depth, depth - k);
          add_product<F, Slot>(a[which].narrow(0, row, height).narrow(1, k, part),
                               b[which].narrow(0, k, part).narrow(1, column, width), space, to, columns);
        }
      }
    });
  });
  return result;
}

}  // namespace fractus::field
