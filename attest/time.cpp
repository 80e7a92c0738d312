#include "attest/time.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>

namespace fractus::attest {
namespace {

using namespace std::chrono;

constexpr std::int64_t last_second = 253'402'300'799;  // 9999-12-31T23:59:59Z

}  // namespace

std::string text_of_time(std::int64_t seconds_since_1970) {
  if (seconds_since_1970 < 0 || seconds_since_1970 > last_second)
    throw std::invalid_argument(fmt::format("{} s is no time between 1970 and 9999", seconds_since_1970));
  const sys_seconds time{seconds(seconds_since_1970)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

std::int64_t time_from(std::string_view text) {
  constexpr std::string_view form = "0000-00-00T00:00:00Z";
  const auto wrong = [&] {
    return std::invalid_argument(fmt::format("'{}' is no time such as 2027-01-31T08:15:00Z", text.substr(0, 64)));
  };
  if (text.size() != form.size()) throw wrong();
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (form[i] == '0' ? !digit : text[i] != form[i]) throw wrong();
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (std::size_t i = at; i < at + digits; ++i) value = value * 10 + (text[i] - '0');
    return value;
  };
  const year_month_day date(year(number(0, 4)), month(static_cast<unsigned>(number(5, 2))),
                            day(static_cast<unsigned>(number(8, 2))));
  const int h = number(11, 2), m = number(14, 2), s = number(17, 2);
  if (!date.ok() || number(0, 4) < 1970 || h > 23 || m > 59 || s > 59) throw wrong();
  return (sys_days(date).time_since_epoch() + hours(h) + minutes(m) + seconds(s)) / seconds(1);
}

}  // namespace fractus::attest
