// Progress on standard error: one line that is rewritten on a terminal, a line a property elsewhere.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "cli/streams.h"
#include "harness/judge.h"
#include "reports/words.h"

namespace fractus::cli {

class ProgressLine {
 public:
  void operator()(const Progress& p) {
    const std::string time = time_text(std::round(10 * p.seconds) / 10);
    if (terminal_) {
      if (p.seconds - shown_at_ < 0.1) return;
      shown_at_ = p.seconds;
      say(fmt::format("\r\033[K{:3.0f} %  {}  {} of {} cases, {}",
                      100.0 * static_cast<double>(p.done) / static_cast<double>(p.total), p.property, p.done, p.total,
                      time));
    } else if (p.property != property_) {
      property_ = p.property;
      say(fmt::format("{}: from case {} of {}, {}\n", p.property, p.done + 1, p.total, time));
    }
  }

  void clear() {
    if (terminal_) say("\r\033[K");
  }

 private:
  bool terminal_ = is_terminal(STDERR_FILENO);
  double shown_at_ = 0;
  std::string property_;
};

}  // namespace fractus::cli
