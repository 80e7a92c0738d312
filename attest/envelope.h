// DSSE envelopes (github.com/secure-systems-lab/dsse, protocol v1) with Ed25519 signatures.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attest/keys.h"

namespace fractus::attest {

struct Signature {
  std::string keyid;  // a hint for the reader, which nothing signs; empty where there is none
  std::string bytes;  // 64 for Ed25519
};

struct Envelope {
  std::string payload_type, payload;
  std::vector<Signature> signatures;
};

// Of the JSON text, unknown members ignored as the protocol wants it; nothing is verified. Base64 is standard or
// URL-safe, padded and canonical. Throws std::runtime_error with `name` and the fault.
Envelope envelope_from(std::string_view text, const std::string& name = "the envelope");
std::string to_text(const Envelope& envelope);

// What is signed: the payload with its type, each behind its length.
std::string pre_authentication_encoding(std::string_view type, std::string_view payload);

Envelope sign(std::string type, std::string payload, const PrivateKey& key);

// The id of the first of the keys that made one of the signatures, whatever ids the envelope names.
std::optional<std::string> verified_by(const Envelope& envelope, std::span<const PublicKey> keys);

}  // namespace fractus::attest
