#include "harness/tighter_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/cases.h"

namespace fractus {
namespace {

constexpr double quarantine_factor = 4;
constexpr int quarantine_cases = 10;  // fewer have no worst worth the name
constexpr std::size_t most_elements_for_all = 20'000;
constexpr std::int64_t most_steps_for_all = 192;

}  // namespace

void TighterLine::draw(const Driver& driver, const Case& c, const Outcome& candidate) {
  if (!on_line(driver, c)) return;
  for (const auto& [tensor, ratio] : candidate.worst_ratio) {
    Line& line = lines_[line_key(driver, tensor, c)];
    ++line.cases;
    if (ratio <= line.candidate) continue;
    line.candidate = ratio;
    line.property = c.property;
    line.where = label(c);
  }
}

void TighterLine::known_good(const std::map<std::string, double>& worst_ratio) {
  for (const auto& [key, ratio] : worst_ratio) lines_[key].known_good = std::max(lines_[key].known_good, ratio);
}

std::vector<Quarantine> TighterLine::exceeded() const {
  std::vector<Quarantine> all;
  for (const auto& [key, line] : lines_)
    if (line.cases >= quarantine_cases && line.known_good > 0 && line.candidate > quarantine_factor * line.known_good)
      all.push_back({line.property,
                     fmt::format("quarantined: {} reaches {:.3g} of its bound, the known-good forms {:.3g} on the same "
                                 "{} cases; its worst is at {}",
                                 key, line.candidate, line.known_good, line.cases, line.where)});
  return all;
}

bool sets_line(const Property& property, const Expectation& expectation) {
  const std::string& symbol = expectation.driver().sequence_symbol;
  return property.compared_with_known_good && value_count(expectation.problem().inputs) <= most_elements_for_all &&
         (symbol.empty() || expectation.of().dims.at(symbol) <= most_steps_for_all);
}

bool on_line(const Driver& driver, const Case& c) {
  return !contains(driver.aligned_fills, c.fill) && (!driver.comparable || driver.comparable(c));
}

std::string line_key(const Driver& driver, const std::string& tensor, const Case& c) {
  return fmt::format("{} {}", tensor, size_class(driver, c));
}

}  // namespace fractus
