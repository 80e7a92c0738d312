// What an envelope of ours says: an in-toto Statement v1 whose predicate is a verdict. docs/signing.md has its members.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attest/digest.h"
#include "attest/envelope.h"

namespace fractus::attest {

inline constexpr const char* payload_type = "application/vnd.in-toto+json";
inline constexpr const char* statement_type = "https://in-toto.io/Statement/v1";
inline constexpr const char* predicate_type = "urn:fractus-verify:verdict:1";
inline constexpr const char* predicate_format = "fractus-verify verdict 1";

struct Subject {
  std::string name;       // how the run named the file or folder; unique in its statement
  std::string algorithm;  // sha256 of a file, tree-sha256 of a folder
  std::string digest;     // hex
  bool operator==(const Subject&) const = default;
};

struct Statement {
  std::vector<Subject> subjects;
  nlohmann::json predicate;  // an object
  bool operator==(const Statement&) const = default;
};

// Of an envelope's payload. Throws std::runtime_error with `name` and the fault: what is missing, of a wrong type,
// twice there, or of another kind of statement.
Statement statement_from(std::string_view payload, const std::string& name = "the statement");
std::string to_text(const Statement& statement);

// A statement whose envelope one of the keys has signed.
struct Signed {
  Statement statement;
  std::string keyid;  // of the key that signed
};

// The one way from a file's text to a statement that can be relied on. Throws std::runtime_error with `name` where the
// text is no envelope, none of the keys signed it, or what it holds is no statement of ours.
Signed open_envelope(std::string_view text, std::span<const PublicKey> keys, const std::string& name = "the envelope");

// The envelope's text.
std::string signed_text(const Statement& statement, const PrivateKey& key);

}  // namespace fractus::attest
