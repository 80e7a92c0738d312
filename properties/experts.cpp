// The driver of moe's experts without gelu, which `identity` alone judges.
#include "contracts/experts.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>

#include "oracle/experts_field.h"
#include "properties/driver.h"
#include "properties/random.h"
#include "properties/rational.h"

namespace fractus::experts {
namespace {

std::vector<Dims> field_shapes(std::int64_t block) {
  std::vector<Dims> list;
  const std::vector<std::int64_t> tokens{1, 2, 7, block - 1, block, block + 1, 2 * block + 1};
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] > 0)
      list.push_back({{"N", tokens[i]},
                      {"K", static_cast<std::int64_t>(1 + i % 2)},
                      {"E", static_cast<std::int64_t>(2 + i % 5)},  // both sides of moe's two paths, 2 K experts
                      {"d", static_cast<std::int64_t>(1 + i % 4)},
                      {"f", static_cast<std::int64_t>(1 + i % 3)}});
  list.push_back({{"N", 9}, {"K", 4}, {"E", 17}, {"d", 5}, {"f", 11}});
  list.push_back({{"N", 6}, {"K", 2}, {"E", 3}, {"d", block}, {"f", 3}});
  list.push_back({{"N", 6}, {"K", 2}, {"E", 3}, {"d", 3}, {"f", block + 1}});
  return list;
}

// Different ones for each token.
std::vector<double> chosen(const Shape& shape, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> all;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    std::vector<double> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0.0);
    for (std::int64_t k = 0; k < shape[1]; ++k) {
      std::swap(numbers[static_cast<std::size_t>(k)], numbers[static_cast<std::size_t>(random.integer(k, count - 1))]);
      all.push_back(numbers[static_cast<std::size_t>(k)]);
    }
  }
  return all;
}

Problem fill(const Case& c) {
  const auto extent = [&](const char* symbol) { return c.dims.contains(symbol) ? c.dims.at(symbol) : 0; };
  if (extent("K") > extent("E"))
    throw std::invalid_argument(
        fmt::format("field 'dims': wanted at most E {} experts a token, got K {}", extent("E"), extent("K")));
  return rational::fill(contract(), c,
                        [&](const Shape& shape, std::uint64_t seed) { return chosen(shape, extent("E"), seed); });
}

}  // namespace

const Driver& driver() {
  static const Driver d{
      .contract = &contract(),
      .fills = rational::fill_names(),
      .smooth_fills = rational::fill_names(),
      .fill = fill,
      .expected =
          [](const Problem& problem, DType dtype, const Judged&) {
            return oracle::experts::expected(rational::float_call(contract(), problem, dtype));
          },
      .over_field = oracle::experts::over_field,
      .degrees = oracle::experts::degrees,
      .field_shapes = field_shapes,
  };
  return d;
}

}  // namespace fractus::experts
