#include "harness/tighter_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "properties/cases.h"

namespace fractus {
namespace {

constexpr std::size_t most_elements_for_all = 20'000;
constexpr std::int64_t most_steps_for_all = 192;

}  // namespace

void TighterLine::draw(const Driver& driver, const Case& c, const Outcome& candidate) {
  if (!on_line(driver, c)) return;
  for (const auto& [tensor, ratio] : candidate.worst_ratio) {
    Line& line = lines_[c.property][line_key(driver, tensor, c)];
    ++line.cases;
    if (ratio <= line.candidate) continue;
    line.candidate = ratio;
    line.where = label(c);
  }
}

void TighterLine::known_good(const std::string& property, const std::map<std::string, double>& worst_ratio) {
  for (const auto& [key, ratio] : worst_ratio) {
    Line& line = lines_[property][key];
    line.known_good = std::max(line.known_good, ratio);
  }
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
