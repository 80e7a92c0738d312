#include "gate/numbers.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>

namespace fractus::gate {
namespace {

enum class Number { finite, infinite, nan };

// Sign, exponent and fraction as IEEE 754 lays them out: not finite where all bits of the exponent are set.
template <class Bits, Bits exponent>
Number ieee(const char* bytes) {
  Bits bits;
  std::memcpy(&bits, bytes, sizeof bits);
  constexpr Bits fraction = (exponent & -exponent) - 1;
  if ((bits & exponent) != exponent) return Number::finite;
  return (bits & fraction) == 0 ? Number::infinite : Number::nan;
}

// The 8-bit forms without infinities (Micikevicius et al. 2022, and OCP Microscaling for e8m0fnu).
template <unsigned char mask, unsigned char pattern>
Number byte_pattern(const char* byte) {
  return (static_cast<unsigned char>(*byte) & mask) == pattern ? Number::nan : Number::finite;
}

struct Reader {
  const char* dtype;
  int parts;  // numbers in an element: two of a complex one
  Number (*number)(const char*);
};
constexpr Reader readers[] = {
    {"float32", 1, ieee<std::uint32_t, 0x7f800000u>},   {"float64", 1, ieee<std::uint64_t, 0x7ff0000000000000u>},
    {"float16", 1, ieee<std::uint16_t, 0x7c00u>},       {"bfloat16", 1, ieee<std::uint16_t, 0x7f80u>},
    {"complex64", 2, ieee<std::uint32_t, 0x7f800000u>}, {"complex128", 2, ieee<std::uint64_t, 0x7ff0000000000000u>},
    {"complex32", 2, ieee<std::uint16_t, 0x7c00u>},     {"float8_e5m2", 1, ieee<std::uint8_t, 0x7cu>},
    {"float8_e4m3fn", 1, byte_pattern<0x7f, 0x7f>},     {"float8_e4m3fnuz", 1, byte_pattern<0xff, 0x80>},
    {"float8_e5m2fnuz", 1, byte_pattern<0xff, 0x80>},   {"float8_e8m0fnu", 1, byte_pattern<0xff, 0xff>},
};

struct Scan {
  const View* view;
  const Reader* reader;
  NotFinite found;
};

// Elements `begin` to `end` of the storage, counted as the view counts them.
void scan(Scan& scan, const char* data, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = std::max(begin, scan.view->offset), last = std::min(end - 1, scan.view->last());
  const int part_bytes = static_cast<int>(scan.view->item_bytes) / scan.reader->parts;
  for (std::int64_t element = first; element <= last; ++element) {
    const char* at = data + (element - begin) * scan.view->item_bytes;
    Number worst = scan.reader->number(at);
    if (scan.reader->parts == 2) worst = std::max(worst, scan.reader->number(at + part_bytes));
    if (worst == Number::finite) continue;
    const auto index = index_in(*scan.view, element);
    if (!index) continue;
    if (scan.found.nans + scan.found.infinities == 0) scan.found.first = *index;
    ++(worst == Number::nan ? scan.found.nans : scan.found.infinities);
  }
}

}  // namespace

std::optional<std::vector<std::int64_t>> index_in(const View& view, std::int64_t element) {
  std::vector<std::size_t> order;  // dimensions that step, the largest step first
  for (std::size_t i = 0; i < view.shape.size(); ++i)
    if (view.shape[i] > 1 && view.strides[i] > 0) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return view.strides[a] > view.strides[b]; });
  std::vector<std::int64_t> index(view.shape.size(), 0);
  if (view.empty() || element < view.offset || element > view.last()) return std::nullopt;
  // Where all smaller steps together stay below a step, that step's count is the quotient and nothing else.
  std::int64_t rest = element - view.offset, below = view.last() - view.offset;
  for (const std::size_t i : order) {
    below -= (view.shape[i] - 1) * view.strides[i];
    if (below >= view.strides[i]) return std::vector<std::int64_t>(view.shape.size(), 0);
    index[i] = rest / view.strides[i];
    rest -= index[i] * view.strides[i];
    if (index[i] >= view.shape[i]) return std::nullopt;
  }
  if (rest != 0) return std::nullopt;
  return index;
}

std::vector<NotFinite> not_finite(const Checkpoint& checkpoint) {
  std::map<std::string, std::vector<Scan>> of_storage;
  for (const auto& [name, place] : checkpoint.views) {
    const View& view = checkpoint.pickle.views[place];
    const auto* reader =
        std::find_if(std::begin(readers), std::end(readers), [&](const Reader& r) { return view.dtype == r.dtype; });
    if (!view.empty() && reader != std::end(readers))
      of_storage[view.storage].push_back({&view, reader, {.name = name}});
  }
  std::vector<NotFinite> found;
  for (auto& [key, scans] : of_storage) {
    constexpr std::size_t block = 1 << 20;  // a multiple of every element's size
    std::string held;
    std::int64_t done = 0;  // bytes
    const auto scan_all = [&](std::size_t bytes) {
      for (Scan& one : scans)
        scan(one, held.data(), done / one.view->item_bytes,
             (done + static_cast<std::int64_t>(bytes)) / one.view->item_bytes);
      done += static_cast<std::int64_t>(bytes);
      held.erase(0, bytes);
    };
    checkpoint.archive.stream("data/" + key, [&](std::string_view piece) {
      held.append(piece);
      while (held.size() >= block) scan_all(block);
    });
    scan_all(held.size());
    for (Scan& one : scans)
      if (one.found.nans + one.found.infinities > 0) found.push_back(std::move(one.found));
  }
  std::sort(found.begin(), found.end(), [](const NotFinite& a, const NotFinite& b) { return a.name < b.name; });
  return found;
}

}  // namespace fractus::gate
