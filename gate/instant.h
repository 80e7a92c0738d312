// Times and spans as a statement and a policy write them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fractus::gate {

using Instant = std::chrono::sys_seconds;

// RFC 3339 in UTC and whole seconds, "2026-11-30T23:40:00Z", of a day that there is; nothing else, since a reader of
// another spelling may understand another time.
std::optional<Instant> instant_from(std::string_view text);
std::string to_text(Instant instant);

// "30s", "10m", "12h", "30d": a whole number above 0 and a unit, up to 100 years.
std::optional<std::chrono::seconds> span_from(std::string_view text);
std::string to_text(std::chrono::seconds span);  // in the largest unit that divides it

// By this machine's clock. Whether that can be believed is for `implausible`.
Instant now();

// Why no clock of a machine that works can show this time; empty where one can. A machine whose clock was reset shows
// a year long past, at which no envelope has expired yet.
std::string implausible(Instant clock);

}  // namespace fractus::gate
