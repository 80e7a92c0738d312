// What a form did that its algebra does not hold.
#pragma once

#include <cstdint>
#include <string>

namespace fractus {

// What a form did that its algebra does not hold, or holds at a generic point alone. `kind` is a stable word: cast (to
// a narrower type), comparison, branch (a value of a tensor became a number of the program), non-algebraic,
// non-deterministic.
struct Remark {
  std::string kind;
  std::string operation;  // "aten::exp"
  std::string place;      // in the source: "attention.py:42 in blocks", or the node of autograd; empty: unknown
  std::string detail;     // "float64 to float32"; may be empty
  std::int64_t count = 1;

  bool operator==(const Remark&) const = default;
};

}  // namespace fractus
