// The driver of matrix products, which `identity` alone judges.
#include "contracts/matmul.h"

#include "oracle/matmul_field.h"
#include "properties/driver.h"
#include "properties/rational.h"

namespace fractus::matmul {
namespace {

std::vector<Dims> field_shapes(std::int64_t block) {
  // K, which is summed over, around every border of a block, and the others around some of them.
  std::vector<Dims> list;
  const std::vector<std::int64_t> lengths{1,         block - 1,     block,     block + 1,    2 * block - 1,
                                          2 * block, 2 * block + 1, 3 * block, 3 * block + 1};
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      list.push_back({{"G", static_cast<std::int64_t>(1 + i % 3)},
                      {"M", static_cast<std::int64_t>(1 + i % 4)},
                      {"K", lengths[i]},
                      {"N", static_cast<std::int64_t>(1 + i % 5)}});
  list.push_back({{"G", 1}, {"M", block + 1}, {"K", 3}, {"N", block - 1 > 0 ? block - 1 : 1}});
  list.push_back({{"G", 11}, {"M", 5}, {"K", 7}, {"N", 3}});
  list.push_back({{"G", 2}, {"M", 17}, {"K", 33}, {"N", 64}});
  return list;
}

}  // namespace

const Driver& driver() {
  static const Driver d{
      .contract = &contract(),
      .fills = rational::fill_names(),
      .smooth_fills = rational::fill_names(),
      .batch_symbol = "G",
      .fill = [](const Case& c) { return rational::fill(contract(), c); },
      .expected =
          [](const Problem& problem, DType dtype, const Judged&) {
            return oracle::matmul::expected(rational::float_call(contract(), problem, dtype));
          },
      .over_field = oracle::matmul::over_field,
      .degrees = oracle::matmul::degrees,
      .field_shapes = field_shapes,
  };
  return d;
}

}  // namespace fractus::matmul
