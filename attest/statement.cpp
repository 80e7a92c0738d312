#include "attest/statement.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>

#include "attest/strict_json.h"

namespace fractus::attest {
namespace {

using nlohmann::json;

constexpr std::size_t most_subjects = 10'000, most_name = 4096;

struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string text_in(const json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end()) throw Malformed(fmt::format("it has no '{}'", member));
  if (!found->is_string()) throw Malformed(fmt::format("'{}': wanted a text, got {}", member, found->type_name()));
  return found->get<std::string>();
}

void require(const json& object, const char* member, const char* wanted) {
  if (const std::string got = text_in(object, member); got != wanted)
    throw Malformed(fmt::format("'{}': wanted '{}', got '{}'", member, wanted, got));
}

Subject subject_from(const json& object) {
  if (!object.is_object()) throw Malformed("a subject is no object");
  Subject subject{.name = text_in(object, "name")};
  if (subject.name.empty() || subject.name.size() > most_name)
    throw Malformed(fmt::format("a subject's name has {} bytes; wanted 1 to {}", subject.name.size(), most_name));
  const auto digest = object.find("digest");
  // With two algorithms, a file and a folder could each be what the statement is about.
  if (digest == object.end() || !digest->is_object() || digest->size() != 1)
    throw Malformed(fmt::format("subject '{}': wanted one digest", subject.name));
  subject.algorithm = digest->begin().key();
  if (subject.algorithm != sha256_name && subject.algorithm != tree_sha256_name)
    throw Malformed(fmt::format("subject '{}': wanted a digest by {} or {}, got one by '{}'", subject.name, sha256_name,
                                tree_sha256_name, subject.algorithm));
  if (digest->begin()->is_string()) digest->begin()->get_to(subject.digest);
  if (subject.digest.size() != 64 || subject.digest.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw Malformed(fmt::format("subject '{}': its digest is not 64 lower-case hex digits", subject.name));
  return subject;
}

Statement read(const json& object) {
  if (!object.is_object()) throw Malformed(fmt::format("wanted an object, got {}", object.type_name()));
  require(object, "_type", statement_type);
  require(object, "predicateType", predicate_type);
  const auto subjects = object.find("subject");
  if (subjects == object.end() || !subjects->is_array() || subjects->empty())
    throw Malformed("it has no list 'subject', or an empty one: it binds no bytes");
  if (subjects->size() > most_subjects)
    throw Malformed(fmt::format("it has {} subjects, and at most {} are read", subjects->size(), most_subjects));
  Statement statement;
  std::set<std::string> names;
  for (const json& one : *subjects) {
    statement.subjects.push_back(subject_from(one));
    if (!names.insert(statement.subjects.back().name).second)
      throw Malformed(fmt::format("two subjects are named '{}'", statement.subjects.back().name));
  }
  const auto predicate = object.find("predicate");
  if (predicate == object.end() || !predicate->is_object()) throw Malformed("it has no object 'predicate'");
  require(*predicate, "format", predicate_format);
  statement.predicate = *predicate;
  return statement;
}

}  // namespace

Statement statement_from(std::string_view payload, const std::string& name) {
  try {
    return read(strict_json(payload, name));
  } catch (const Malformed& fault) {
    throw std::runtime_error(fmt::format("{} is no statement of a verdict: {}", name, fault.what()));
  }
}

std::string to_text(const Statement& statement) {
  json subjects = json::array();
  for (const Subject& subject : statement.subjects)
    subjects.push_back({{"name", subject.name}, {"digest", {{subject.algorithm, subject.digest}}}});
  return json{{"_type", statement_type},
              {"subject", subjects},
              {"predicateType", predicate_type},
              {"predicate", statement.predicate}}
      .dump();
}

Signed open_envelope(std::string_view text, std::span<const PublicKey> keys, const std::string& name) {
  const Envelope envelope = envelope_from(text, name);
  auto keyid = verified_by(envelope, keys);
  if (!keyid) {
    std::string known, named;
    for (const PublicKey& key : keys) known += fmt::format("{}{}", known.empty() ? "" : ", ", attest::keyid(key));
    for (const Signature& signature : envelope.signatures)
      named += fmt::format("{}'{}'", named.empty() ? "" : ", ", signature.keyid);
    throw std::runtime_error(
        fmt::format("{}: no signature of it is by a given key (given: {}; it names {}): it was changed after it was "
                    "signed, or another key signed it",
                    name, known.empty() ? "none" : known, named));
  }
  if (envelope.payload_type != payload_type)
    throw std::runtime_error(
        fmt::format("{}: its payload is '{}', and wanted is '{}'", name, envelope.payload_type, payload_type));
  return {statement_from(envelope.payload, name), std::move(*keyid)};
}

std::string signed_text(const Statement& statement, const PrivateKey& key) {
  const std::string payload = to_text(statement);
  statement_from(payload);  // nothing is signed that a reader would refuse
  return to_text(sign(payload_type, payload, key));
}

}  // namespace fractus::attest
