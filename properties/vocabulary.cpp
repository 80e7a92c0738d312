#include "properties/vocabulary.h"

#include <algorithm>
#include <limits>

namespace fractus::vocabulary {
namespace {

constexpr std::int64_t far_above = 2048;  // the training run's own, above most N here

}  // namespace

Dims dims(std::int64_t N, std::int64_t d, std::int64_t V, std::int64_t ce_chunk) {
  return {{"N", N}, {"d", d}, {"V", V}, {"ce_chunk", ce_chunk}};
}

Dims training_run() { return dims(256, 1280, 50257, 96); }

std::vector<Dims> shapes(std::int64_t block) {
  const std::vector<std::int64_t> vocabularies{
      5, 31, block - 1, block, block + 1, 2 * block - 1, 2 * block, 2 * block + 1, 3 * block + 5, 2, 3, 257};
  const std::vector<std::int64_t> rows{4, 7, 8, 5, 2, 16, 3, 13};
  const std::vector<std::int64_t> widths{4, 1, 8, 3, 5, 2, 16};
  std::vector<Dims> list;
  std::size_t turn = 0;
  for (const std::int64_t V : vocabularies) {
    if (V < 1) continue;
    const std::int64_t N = V > 2000 ? std::min<std::int64_t>(rows[turn % rows.size()], 5) : rows[turn % rows.size()];
    const std::vector<std::int64_t> chunks{3, 1, N - 1, 0, N, 2, N + 1, far_above, N / 2};
    list.push_back(dims(N, widths[turn % widths.size()], V, std::max<std::int64_t>(chunks[turn % chunks.size()], 0)));
    ++turn;
  }
  for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{1}, std::int64_t{6}, std::int64_t{7}, std::int64_t{8},
                                   std::int64_t{3}, far_above})
    list.push_back(dims(7, 3, 37, chunk));
  // Widths, rows and vocabularies that a kernel may treat apart.
  for (const Dims& one :
       {dims(1, 4, 11, 0),    dims(1, 2, 130, 1),   dims(1, 5, 9, 4),    dims(3, 4, 1, 2),     dims(2, 1, 1, 0),
        dims(5, 32, 40, 2),   dims(3, 17, 65, 2),   dims(4, 64, 33, 3),  dims(2, 65, 19, 1),   dims(2, 96, 24, 2),
        dims(3, 128, 20, 2),  dims(37, 3, 29, 10),  dims(64, 2, 17, 16), dims(65, 2, 17, 16),  dims(100, 4, 7, 32),
        dims(129, 1, 5, 128), dims(256, 2, 9, 100), dims(300, 2, 6, 7),  dims(1024, 2, 5, 96), dims(3, 2, 1009, 2),
        dims(4, 3, 1025, 3),  dims(2, 4, 1500, 1),  dims(5, 2, 2500, 2), dims(2, 3, 5003, 0),  dims(3, 3, 10007, 2),
        dims(4, 2, 70001, 3)})
    list.push_back(one);
  // Where a kernel may go over to whole vectors or tiles: widths and vocabularies that are powers of two or multiples
  // of 128, more rows and more chunks than a table has room for.
  for (const Dims& one :
       {dims(2, 256, 19, 1), dims(3, 512, 21, 2), dims(2, 768, 10, 0), dims(3, 1024, 12, 2), dims(3, 2, 1024, 2),
        dims(2, 3, 2048, 1), dims(2, 4, 4096, 0), dims(5, 2, 384, 2), dims(2, 5, 768, 1), dims(2051, 2, 5, 512),
        dims(300, 1, 4, 1), dims(520, 2, 3, 2), dims(290, 128, 9, 64)})
    list.push_back(one);
  return list;
}

rc::Gen<Dims> random_shape(std::int64_t block) {
  using rc::gen::inRange;
  const auto border =
      rc::gen::map(rc::gen::pair(inRange<std::int64_t>(1, 4), inRange<std::int64_t>(-1, 2)),
                   [block](const auto& p) { return std::max<std::int64_t>(1, p.first * block + p.second); });
  const auto vocabulary =
      rc::gen::weightedOneOf<std::int64_t>({{3, inRange<std::int64_t>(1, 40)},
                                            {3, inRange<std::int64_t>(1, 2 * block + 2)},
                                            {2, border},
                                            {1, inRange<std::int64_t>(200, 3000)},
                                            {1, rc::gen::element<std::int64_t>(128, 256, 384, 512, 1024, 1152, 2048)}});
  const auto rows = rc::gen::weightedOneOf<std::int64_t>({{4, inRange<std::int64_t>(1, 12)},
                                                          {3, rc::gen::element<std::int64_t>(1, 2, 4, 8, 16, 32)},
                                                          {1, inRange<std::int64_t>(12, 80)}});
  const auto width =
      rc::gen::weightedOneOf<std::int64_t>({{18, rc::gen::element<std::int64_t>(1, 2, 3, 4, 5, 8, 8, 12, 16)},
                                            {2, inRange<std::int64_t>(17, 80)},
                                            {1, rc::gen::element<std::int64_t>(128, 192, 256, 512)}});
  const auto chunk = rc::gen::weightedOneOf<std::int64_t>(
      {{1, rc::gen::just<std::int64_t>(0)}, {5, inRange<std::int64_t>(1, 14)}, {1, rc::gen::just(far_above)}});
  return rc::gen::map(rc::gen::tuple(rows, width, vocabulary, chunk), [](const auto& t) {
    const auto [N, d, V, ce_chunk] = t;
    return dims(V > 3000 ? std::min<std::int64_t>(N, 4) : N, d, V, ce_chunk);
  });
}

std::vector<std::string> classes(const Case& c, std::int64_t block) {
  const std::int64_t N = c.dims.at("N"), V = c.dims.at("V"), chunk = c.dims.at("ce_chunk");
  std::vector<std::string> all;
  all.emplace_back(N == 0          ? "N = 0"
                   : chunk == 0    ? "ce_chunk = 0"
                   : chunk > N     ? "ce_chunk > N"
                   : chunk == N    ? "ce_chunk = N"
                   : N % chunk > 0 ? "short last chunk"
                                   : "whole chunks");
  if (chunk == 1) all.emplace_back("ce_chunk = 1");
  if (N == 1) all.emplace_back("N = 1");
  if (V == 1) all.emplace_back("V = 1");
  all.emplace_back(V < block ? "V short of a block" : V % block == 0 ? "V whole blocks" : "V ragged tail");
  return all;
}

std::vector<std::string> required_classes(std::int64_t block) {
  std::vector<std::string> all{"ce_chunk = 0", "ce_chunk > N", "ce_chunk = N", "short last chunk", "whole chunks",
                               "ce_chunk = 1", "N = 1",        "V = 1",        "V whole blocks"};
  if (block > 1) all.insert(all.end(), {"V short of a block", "V ragged tail"});
  return all;
}

std::int64_t chunk_elements(const Dims& dims, std::int64_t matrices) {
  const std::int64_t N = dims.at("N"), chunk = dims.at("ce_chunk") == 0 ? N : std::min(dims.at("ce_chunk"), N);
  return matrices * chunk * dims.at("V") + N * (dims.at("d") + 16);
}

Problem with_nan(Problem problem, std::size_t input, std::uint64_t seed) {
  std::vector<double>& values = problem.inputs[input]->values;
  values[seed % values.size()] = std::numeric_limits<double>::quiet_NaN();
  return problem;
}

}  // namespace fractus::vocabulary
