// Ed25519 keys in PEM files, as OpenSSL reads and writes them. Nothing here prints or logs a private key.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace fractus::attest {

struct PrivateKey {
  std::shared_ptr<evp_pkey_st> key;
};

struct PublicKey {
  std::shared_ptr<evp_pkey_st> key;
};

// PEM, PKCS#8, unencrypted. Throws std::runtime_error with file, fault and remedy; so do the others. A file is refused
// that another user owns, or that group or others may read or write.
PrivateKey read_private(const std::filesystem::path& file);

// PEM, SubjectPublicKeyInfo.
PublicKey read_public(const std::filesystem::path& file);
PublicKey public_from(std::string_view pem, const std::string& name);  // `name` stands in errors

PublicKey public_of(const PrivateKey& key);

// SHA-256 of the DER SubjectPublicKeyInfo, hex.
std::string keyid(const PublicKey& key);

struct NewKey {
  std::filesystem::path private_file, public_file;  // mykey.pem and mykey.pub.pem
  std::string keyid;
};

// Makes a key and writes both files, the private one readable by its owner alone. Never over a file that is there.
NewKey new_key(const std::filesystem::path& file);

}  // namespace fractus::attest
