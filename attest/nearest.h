// Errors that name the nearest thing that there is.
#pragma once

#include <string>
#include <vector>

namespace fractus {

// Known names by edit distance, nearest first; at most three, and none that shares next to nothing.
std::vector<std::string> nearest(const std::string& wanted, const std::vector<std::string>& known);

// "did you mean block?", or "there are: a, b" where none is near.
std::string nearest_text(const std::string& wanted, const std::vector<std::string>& known);

}  // namespace fractus
