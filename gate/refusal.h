// What a check of the gate says. A check is a function that returns all that it refuses, not the first alone, so that
// whoever has to mend it sees the whole at once.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fractus::gate {

struct Refusal {
  std::string check;   // which check: "signature", "artifact", "manifest" ...; the same word for every refusal of it
  std::string fact;    // what was wanted and what was got, each named
  std::string remedy;  // what to do about it
};

// What was looked at and passed.
struct Checked {
  std::string check, said;
};

// The answer of one check, or of several put together. Nothing looked at and nothing refused is no pass: whoever
// admits must hold `checked` or `refusals` from every check that was asked for.
struct Answer {
  std::vector<Checked> checked;
  std::vector<Refusal> refusals;

  bool admitted() const { return refusals.empty() && !checked.empty(); }

  void add(Answer other) {
    for (Checked& one : other.checked) checked.push_back(std::move(one));
    for (Refusal& one : other.refusals) refusals.push_back(std::move(one));
  }
};

}  // namespace fractus::gate
