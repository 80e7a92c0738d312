// What a call says when it refuses its input.
#pragma once

#include <string>

namespace fractus {

// The message of what `act` throws, "" where it throws nothing; anything but an Expected goes on.
template <class Expected, class Act>
std::string complaint_of(Act act) {
  try {
    act();
  } catch (const Expected& error) {
    return error.what();
  }
  return "";
}

}  // namespace fractus
