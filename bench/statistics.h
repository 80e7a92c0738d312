// Medians, what a process and the machine hold, and how a run ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "contracts/call.h"

namespace fractus::bench {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A field of such a file of /proc as counts kilobytes, in bytes; 0 where it has none of that name.
inline std::int64_t proc_bytes(const std::string& file, const std::string& field) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;)
    if (word == field) {
      std::int64_t kilobytes = 0;
      lines >> kilobytes;
      return kilobytes * 1024;
    }
  return 0;
}

// Of /proc/self/status, for instance "VmHWM:".
inline std::int64_t status_bytes(const std::string& field) { return proc_bytes("/proc/self/status", field); }

inline std::string ending(Status status) {
  switch (status) {
    case Status::ok: return "ok";
    case Status::raised: return "raised";
    case Status::crashed: return "crashed";
    case Status::timed_out: return "timed out";
    case Status::out_of_memory: return "out of memory";
  }
  return "?";
}

}  // namespace fractus::bench
