#include "attest/envelope.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "attest/strict_json.h"

namespace fractus::attest {
namespace {

using nlohmann::json;

constexpr std::size_t signature_bytes = 64;
constexpr std::size_t most_signatures = 32, most_signature_text = 8192, most_type = 1024;

struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');  // OpenSSL ends it with a NUL
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

// One text for each string of bytes: OpenSSL's decoder lets white space, missing padding and stray bits pass, and what
// it made is encoded again to see that there was none.
std::string bytes_from_base64(std::string text, const char* what) {
  const bool url_safe = text.find_first_of("-_") != std::string::npos;
  if (url_safe && text.find_first_of("+/") != std::string::npos)
    throw Malformed(fmt::format("{}: its base64 mixes the standard and the URL-safe alphabet", what));
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  const Malformed wrong(fmt::format("{}: it is no canonical base64 with padding", what));
  if (text.size() % 4 != 0) throw wrong;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  ERR_clear_error();
  if (size < 0 || static_cast<std::size_t>(size) > bytes.size()) throw wrong;
  const std::size_t padding = text.empty() ? 0 : text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  if (static_cast<std::size_t>(size) < padding) throw wrong;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  if (base64(bytes) != text) throw wrong;
  return bytes;
}

const std::string& text_in(const json& object, const char* member, std::size_t most) {
  const auto found = object.find(member);
  if (found == object.end()) throw Malformed(fmt::format("it has no '{}'", member));
  if (!found->is_string()) throw Malformed(fmt::format("'{}': wanted a text, got {}", member, found->type_name()));
  const auto& text = found->get_ref<const std::string&>();
  if (text.size() > most) throw Malformed(fmt::format("'{}' is longer than {} bytes", member, most));
  return text;
}

Envelope read(const json& object) {
  if (!object.is_object()) throw Malformed(fmt::format("wanted an object, got {}", object.type_name()));
  Envelope envelope;
  envelope.payload_type = text_in(object, "payloadType", most_type);
  if (envelope.payload_type.empty()) throw Malformed("'payloadType' is empty");
  envelope.payload = bytes_from_base64(text_in(object, "payload", JsonLimits{}.bytes), "'payload'");
  const auto signatures = object.find("signatures");
  if (signatures == object.end() || !signatures->is_array()) throw Malformed("it has no list 'signatures'");
  if (signatures->empty()) throw Malformed("'signatures' is empty: nobody has signed it");
  if (signatures->size() > most_signatures)
    throw Malformed(fmt::format("it has {} signatures, and at most {} are read", signatures->size(), most_signatures));
  for (const json& one : *signatures) {
    if (!one.is_object()) throw Malformed("a signature is no object");
    Signature signature;
    // Optional, and some writers say null where there is none.
    if (const auto id = one.find("keyid"); id != one.end() && !id->is_null())
      signature.keyid = text_in(one, "keyid", most_type);
    signature.bytes = bytes_from_base64(text_in(one, "sig", most_signature_text), "'sig'");
    if (signature.bytes.empty()) throw Malformed("'sig' is empty");
    envelope.signatures.push_back(std::move(signature));
  }
  return envelope;
}

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

bool verifies(const std::string& message, const std::string& signature, const PublicKey& key) {
  if (signature.size() != signature_bytes) return false;
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const bool good =
      context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.key.get()) == 1 &&
      EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(message), message.size()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace

Envelope envelope_from(std::string_view text, const std::string& name) {
  try {
    return read(strict_json(text, name));
  } catch (const Malformed& fault) {
    throw std::runtime_error(fmt::format("{} is no DSSE envelope: {}", name, fault.what()));
  }
}

std::string to_text(const Envelope& envelope) {
  json signatures = json::array();
  for (const Signature& signature : envelope.signatures)
    signatures.push_back({{"keyid", signature.keyid}, {"sig", base64(signature.bytes)}});
  return json{{"payloadType", envelope.payload_type}, {"payload", base64(envelope.payload)}, {"signatures", signatures}}
             .dump(1) +
         "\n";
}

std::string pre_authentication_encoding(std::string_view type, std::string_view payload) {
  return fmt::format("DSSEv1 {} {} {} {}", type.size(), type, payload.size(), payload);
}

Envelope sign(std::string type, std::string payload, const PrivateKey& key) {
  const std::string message = pre_authentication_encoding(type, payload);
  std::string signature(signature_bytes, '\0');
  std::size_t size = signature.size();
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, bytes_of(message),
                     message.size()) != 1 ||
      size != signature_bytes) {
    ERR_clear_error();
    throw std::runtime_error("OpenSSL does not sign with this key");
  }
  return {std::move(type), std::move(payload), {{keyid(public_of(key)), std::move(signature)}}};
}

std::optional<std::string> verified_by(const Envelope& envelope, std::span<const PublicKey> keys) {
  const std::string message = pre_authentication_encoding(envelope.payload_type, envelope.payload);
  for (const PublicKey& key : keys)
    for (const Signature& signature : envelope.signatures)
      if (verifies(message, signature.bytes, key)) return keyid(key);
  return std::nullopt;
}

}  // namespace fractus::attest
