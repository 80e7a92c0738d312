#include "attest/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace fractus {
namespace {

// Levenshtein's distance, one row at a time.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest(const std::string& wanted, const std::vector<std::string>& known) {
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string& name : known) {
    const bool part =
        !wanted.empty() && (name.find(wanted) != std::string::npos || wanted.find(name) != std::string::npos);
    const std::size_t edits = part ? 1 : distance(wanted, name);
    if (edits <= std::max<std::size_t>(2, std::max(wanted.size(), name.size()) / 2)) ranked.emplace_back(edits, name);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [edits, name] : ranked)
    if (names.size() < 3) names.push_back(name);
  return names;
}

std::string nearest_text(const std::string& wanted, const std::vector<std::string>& known) {
  if (known.empty()) return "there is none";
  const auto close = nearest(wanted, known);
  return close.empty() ? fmt::format("there are: {}", fmt::join(known, ", "))
                       : fmt::format("did you mean {}?", fmt::join(close, ", or "));
}

}  // namespace fractus
