// The tighter line: a candidate whose worst ratio of error to bound is a few times that of the known-good forms on the
// same cases is set apart for a person, not refused (DESIGN.md, property 3).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "properties/property.h"
#include "reports/result.h"

namespace fractus {

class TighterLine {
 public:
  void draw(const Driver& driver, const Case& c, const Outcome& candidate);
  void known_good(const std::string& property, const std::map<std::string, double>& worst_ratio);  // Shown::line
  const Lines& lines() const { return lines_; }

 private:
  Lines lines_;
};

// Whether the known-good forms run the case: beyond a size and length the quadratic reference, and the one that goes
// token by token, would cost more than all the rest.
bool sets_line(const Property& property, const Expectation& expectation);

// Whether the case counts for the tighter line. Where all roundings point one way every form comes near its bound, and
// a line through such cases would hide a coarse one.
bool on_line(const Driver& driver, const Case& c);

// "y T 64-127": what the tighter line compares; cases of one length class have comparably tight bounds.
std::string line_key(const Driver& driver, const std::string& tensor, const Case& c);

}  // namespace fractus
