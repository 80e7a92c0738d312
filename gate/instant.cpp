#include "gate/instant.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace fractus::gate {
namespace {

using namespace std::chrono;

// Nothing of this program was built, and so nothing signed, before the first; the second is where a clock of 32 bits
// that is read as unsigned ends.
constexpr sys_seconds first_possible = sys_days(2026y / January / 1), last_possible = sys_days(2106y / February / 7);

constexpr std::array<std::pair<char, seconds>, 4> units{
    {{'d', seconds(86400)}, {'h', seconds(3600)}, {'m', seconds(60)}, {'s', seconds(1)}}};

// The digits from `at` on; -1 where one of them is none.
int digits(std::string_view text, std::size_t at, std::size_t count) {
  int value = 0;
  for (const char c : text.substr(at, count)) {
    if (c < '0' || c > '9') return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

}  // namespace

std::optional<Instant> instant_from(std::string_view text) {
  constexpr std::string_view form = "0000-00-00T00:00:00Z";
  if (text.size() != form.size()) return std::nullopt;
  for (std::size_t i = 0; i < form.size(); ++i)
    if (form[i] != '0' && text[i] != form[i]) return std::nullopt;
  const int y = digits(text, 0, 4), mo = digits(text, 5, 2), d = digits(text, 8, 2), h = digits(text, 11, 2),
            mi = digits(text, 14, 2), s = digits(text, 17, 2);
  if (y < 0 || mo < 0 || d < 0 || h < 0 || mi < 0 || s < 0) return std::nullopt;
  const year_month_day date{year(y), month(static_cast<unsigned>(mo)), day(static_cast<unsigned>(d))};
  if (!date.ok() || h > 23 || mi > 59 || s > 59) return std::nullopt;
  return sys_days(date) + hours(h) + minutes(mi) + seconds(s);
}

std::string to_text(Instant instant) {
  const sys_days date = floor<days>(instant);
  const year_month_day ymd(date);
  const hh_mm_ss time(instant - date);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(ymd.year()),
                     static_cast<unsigned>(ymd.month()), static_cast<unsigned>(ymd.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count());
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
