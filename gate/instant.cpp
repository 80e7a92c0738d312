#include "gate/instant.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "attest/time.h"

namespace fractus::gate {
namespace {

using namespace std::chrono;

// Nothing of this program was built, and so nothing signed, before the first; the second is where a clock of 32 bits
// that is read as unsigned ends.
constexpr sys_seconds first_possible = sys_days(2026y / January / 1), last_possible = sys_days(2106y / February / 7);

constexpr std::array<std::pair<char, seconds>, 4> units{
    {{'d', seconds(86400)}, {'h', seconds(3600)}, {'m', seconds(60)}, {'s', seconds(1)}}};

}  // namespace

std::optional<Instant> instant_from(std::string_view text) {
  try {
    return Instant(seconds(attest::time_from(text)));
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

std::string to_text(Instant instant) {
  try {
    return attest::text_of_time(instant.time_since_epoch().count());
  } catch (const std::invalid_argument&) {
    return fmt::format("{} s from 1970", instant.time_since_epoch().count());  // a clock can be set to it
  }
}

std::optional<seconds> span_from(std::string_view text) {
  constexpr std::int64_t most_days = 36525;
  std::int64_t amount = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, amount);
  if (error != std::errc() || rest + 1 != end || amount < 1) return std::nullopt;
  for (const auto& [letter, unit] : units)
    if (*rest == letter && amount <= most_days * 86400 / unit.count()) return amount * unit;
  return std::nullopt;
}

std::string to_text(seconds span) {
  for (const auto& [letter, unit] : units)
    if (span % unit == seconds(0)) return fmt::format("{}{}", span / unit, letter);
  return "";  // not reached: a second divides all
}

Instant now() { return floor<seconds>(system_clock::now()); }

std::string implausible(Instant clock) {
  if (clock < first_possible)
    return fmt::format("it shows {}, before {}, when nothing had been signed yet", to_text(clock),
                       to_text(first_possible));
  if (clock > last_possible) return fmt::format("it shows {}, later than {}", to_text(clock), to_text(last_possible));
  return "";
}

}  // namespace fractus::gate
