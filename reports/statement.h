// The statement that is signed of a result. docs/signing.md says what its members mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/statement.h"
#include "reports/result.h"

namespace fractus {

// What the forms of a run were made of. One file may be both.
struct Bytes {
  std::vector<attest::Subject> candidate;  // at least one
  std::vector<attest::Subject> reference;  // of what the candidate was held against
  bool operator==(const Bytes&) const = default;
};

// As a statement has them, and the names in one line.
Bytes bytes_in(const attest::Statement& statement);
std::string text_of(const Bytes& bytes);

// The word that is signed. EQUIVALENT stands for a complete run of the whole plan; a run that left properties out and
// found nothing wrong is PARTIAL. Throws std::logic_error where a result calls itself EQUIVALENT and is not complete.
std::string verdict_to_sign(const Result& result);

// `issued` and `expires` in seconds since 1970. Throws std::invalid_argument where the bytes do not fit together.
attest::Statement statement_of(const Result& result, const Bytes& bytes, std::int64_t issued, std::int64_t expires);

}  // namespace fractus
