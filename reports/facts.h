// What the pages for a person say alike, as plain text: each view escapes it in its own way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/result.h"

namespace fractus {

// How near one output or gradient came to its bound, over all properties.
struct OutputError {
  std::string key;                   // "float32 y"
  double worst = 0;                  // the largest error over bound
  std::string property;              // that showed it
  std::optional<double> known_good;  // the same of the known-good forms
  Histogram histogram;               // of all its elements
};
std::vector<OutputError> output_errors(const Result& result);

bool broke(const Result& result);  // a property has a finding, and its worst errors are of the cases before that

std::int64_t killed(const Result& result);                 // known-wrong forms
std::vector<std::string> survivors(const Result& result);  // none before power was measured

// By property, how many known-wrong forms it was the first to catch.
std::map<std::string, std::int64_t> kills_by_property(const Result& result);

// What the property's escape says of a form that is wrong, in a sentence; empty where none is claimed.
std::string escape_text(const PropertyResult& p);

// What the candidate did that its algebra does not hold, a line for each kind of thing in each place.
inline constexpr const char* audit_title = "What the form did that its algebra does not hold";
std::vector<std::string> audit_lines(const Result& result);
std::string audit_counts(const Result& result);  // "2 casts, 1 comparison; report.md names them", by place

// What follows from the property's having passed; nothing where it has not.
std::vector<std::string> claims_of(const PropertyResult& p);

// What an EQUIVALENT verdict says, in a sentence.
std::string proven_text(const Result& result);

// What no case of the run tried, one phrase each.
std::vector<std::string> not_covered(const Result& result);

// The command that makes the same plan again.
std::string command_of(const Result& result);

// "1.5 KiB"
std::string bytes_text(std::int64_t bytes);

// Largest first part, with a mark where something is left out; cut where a character begins.
std::string clipped(std::string_view text, std::size_t most);

}  // namespace fractus
