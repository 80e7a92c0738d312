// The driver of the rational part of block_core's attention, which `identity` alone judges.
#include "contracts/block_attention.h"

#include "oracle/block_attention_field.h"
#include "properties/driver.h"
#include "properties/rational.h"

namespace fractus::block_attention {
namespace {

std::vector<Dims> field_shapes(std::int64_t block) {
  std::vector<Dims> list;
  const std::vector<std::int64_t> lengths{1,         block - 1,     block,         block + 1, 2 * block - 1,
                                          2 * block, 2 * block + 1, 3 * block - 1, 3 * block, 3 * block + 1};
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      list.push_back({{"B", static_cast<std::int64_t>(1 + i % 2)},
                      {"L", static_cast<std::int64_t>(1 + i % 3)},
                      {"T", lengths[i]},
                      {"H", static_cast<std::int64_t>(1 + i % 2)},
                      {"D", static_cast<std::int64_t>(2 + i % 3)}});
  list.push_back({{"B", 3}, {"L", 2}, {"T", 5}, {"H", 5}, {"D", 4}});
  list.push_back({{"B", 1}, {"L", 2}, {"T", 3}, {"H", 2}, {"D", 17}});
  return list;
}

}  // namespace

const Driver& driver() {
  static const Driver d{
      .contract = &contract(),
      .fills = rational::fill_names(),
      .smooth_fills = {"positive", "signed", "magnitudes"},
      .batch_symbol = "B",
      .sequence_symbol = "T",
      .carry = {{"S", "S0"}, {"z", "z0"}},
      .along_sequence = {"q", "k", "v", "y"},
      .fill = [](const Case& c) { return rational::fill(contract(), c); },
      .expected =
          [](const Problem& problem, DType dtype, const Judged&) {
            return oracle::block_attention::expected(rational::float_call(contract(), problem, dtype));
          },
      .over_field = oracle::block_attention::over_field,
      .degrees = oracle::block_attention::degrees,
      .field_shapes = field_shapes,
  };
  return d;
}

}  // namespace fractus::block_attention
