// Points of time as a statement writes them: RFC 3339, UTC, whole seconds, such as 2027-01-31T08:15:00Z.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fractus::attest {

std::string text_of_time(std::int64_t seconds_since_1970);  // years 1970 to 9999

// Of that very form, of a day and second that exist. Throws std::invalid_argument.
std::int64_t time_from(std::string_view text);

}  // namespace fractus::attest
