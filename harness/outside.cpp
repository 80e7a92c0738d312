#include "harness/outside.h"

#include <fmt/format.h>

#include <stdexcept>

namespace fractus::outside {
namespace {

std::string spellings() {
  std::string text;
  for (const Kind& kind : kinds) text += fmt::format("{}{}", text.empty() ? "" : ", ", kind.spelling);
  return text;
}

}  // namespace

std::optional<Spec> spec_from(const std::string& candidate) {
  for (const Kind& kind : kinds) {
    // The path may hold colons; the name of an operator does. The first ending that a colon follows ends the path.
    const std::string border = std::string(kind.ending) + ":";
    const auto at = candidate.find(border);
    if (kind.takes_name && at != std::string::npos && at > 0 && at + border.size() < candidate.size())
      return Spec{&kind, candidate.substr(0, at + kind.ending.size()), candidate.substr(at + border.size())};
    if (!candidate.ends_with(kind.ending) && at == std::string::npos) continue;
    if (kind.takes_name || at != std::string::npos)
      throw std::invalid_argument(fmt::format("'{}': wanted {}", candidate, kind.spelling));
    return Spec{&kind, candidate, ""};
  }
  // Names of forms are plain words, with parameters behind a colon.
  const std::string word = candidate.substr(0, candidate.find(':'));
  if (word.find_first_of("/.") == std::string::npos) return std::nullopt;
  throw std::invalid_argument(fmt::format("'{}': wanted the name of a form, or {}", candidate, spellings()));
}

}  // namespace fractus::outside
