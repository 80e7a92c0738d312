// What a form whose algebra differs computes instead, and where its fault shows in floats.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "properties/over_field.h"
#include "properties/property.h"

namespace fractus {

// A call over a field, what the definition says of it, and what the form said.
struct Trial {
  FieldCall call;
  oracle::FieldExpected expected;
  FieldAnswer answer;
};

// "as if z0 were absent", where that tensor of the form is exactly so in all trials; empty where nothing tried is.
std::string explained(const Driver& driver, const std::string& tensor, const std::vector<Trial>& trials);

// The distributions that a float witness is looked for in: all of the kernel's, ordinary ones first.
std::vector<std::string> witness_fills(const Driver& driver);

// A case over floats, of the same extents and settings, in which the form breaks a certified bound, and what it shows;
// none where none of these fills shows any.
std::optional<std::pair<Case, Outcome>> float_witness(Expectation& expectation, const Subject& subject,
                                                      const std::vector<std::string>& fills);

}  // namespace fractus
