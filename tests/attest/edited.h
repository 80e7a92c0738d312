// Bytes that somebody has been at.
#pragma once

#include <rapidcheck.h>

#include <string>

namespace fractus::attest {

// The text cut short, with bytes put in, with a part of itself put in, or with a byte turned over, once to `most`
// times.
inline std::string edited(std::string bytes, int most) {
  const int edits = *rc::gen::inRange(1, most + 1);
  for (int i = 0; i < edits; ++i) {
    const auto at = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(bytes.size()) + 1));
    switch (*rc::gen::inRange(0, 4)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.insert(at, *rc::gen::arbitrary<std::string>()); break;
      case 2: bytes.insert(at, bytes.substr(at / 2)); break;
      default:
        if (at < bytes.size()) bytes[at] = *rc::gen::arbitrary<char>();
    }
  }
  return bytes;
}

}  // namespace fractus::attest
