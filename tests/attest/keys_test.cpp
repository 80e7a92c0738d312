// Which files are taken as keys, and that no private key leaves its file.
#include "attest/keys.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <pwd.h>

#include "attest/digest.h"
#include "tests/attest/folder.h"

namespace fractus::attest {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

std::string pem_of(EVP_PKEY* key, bool is_private, const char* passphrase = nullptr) {
  BIO* bio = BIO_new(BIO_s_mem());
  if (is_private)
    PEM_write_bio_PKCS8PrivateKey(bio, key, passphrase == nullptr ? nullptr : EVP_aes_256_cbc(), passphrase,
                                  passphrase == nullptr ? 0 : 6, nullptr, nullptr);
  else
    PEM_write_bio_PUBKEY(bio, key);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return text;
}

Key other_key(const std::string& kind) {
  EVP_PKEY* key = kind == "RSA"  ? EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{2048})
                  : kind == "EC" ? EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256")
                                 : EVP_PKEY_Q_keygen(nullptr, nullptr, kind.c_str());
  return {key, EVP_PKEY_free};
}

using Keys = Folder;

// Protects the signer: what `key new` makes is read back, is one pair, and only its owner may read the private half.
TEST_F(Keys, ANewKeyIsAPair) {
  const NewKey made = new_key(folder / "mine.pem");
  EXPECT_EQ(made.public_file, folder / "mine.pub.pem");
  EXPECT_EQ(keyid(public_of(read_private(made.private_file))), made.keyid);
  EXPECT_EQ(keyid(read_public(made.public_file)), made.keyid);
  struct stat status {};
  ASSERT_EQ(stat(made.private_file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(new_key(folder / "plain").public_file, folder / "plain.pub.pem");
  EXPECT_NE(keyid(read_public(folder / "plain.pub.pem")), made.keyid);
}

// Protects keys that are there: nothing is written over either half, nor through a link, and no half is left.
TEST_F(Keys, NothingIsWrittenOver) {
  write("a.pem", "precious");
  EXPECT_NE(error_of([&] { new_key(folder / "a.pem"); }).find("never written over"), std::string::npos);
  EXPECT_EQ(text_of(folder / "a.pem"), "precious");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.pub.pem"));
  write("b.pub.pem", "precious");
  EXPECT_NE(error_of([&] { new_key(folder / "b.pem"); }).find("never written over"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "b.pem"));
  std::filesystem::create_symlink(folder / "elsewhere", folder / "c.pem");  // which leads nowhere yet
  EXPECT_NE(error_of([&] { new_key(folder / "c.pem"); }), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
}

// Protects: a key that somebody else could have read, or that is not this user's, signs nothing.
TEST_F(Keys, LooseFilesAreRefused) {
  const std::filesystem::path file = new_key(folder / "k.pem").private_file;
  for (const mode_t mode : {0640u, 0604u, 0660u, 0610u, 0602u}) {
    chmod(file.c_str(), mode);
    EXPECT_NE(error_of([&] { read_private(file); }).find("chmod 600"), std::string::npos) << std::oct << mode;
  }
  for (const mode_t mode : {0600u, 0400u, 0700u}) {
    chmod(file.c_str(), mode);
    EXPECT_EQ(error_of([&] { read_private(file); }), "") << std::oct << mode;
  }
  std::filesystem::create_symlink(file, folder / "link.pem");  // as secrets are mounted
  EXPECT_EQ(error_of([&] { read_private(folder / "link.pem"); }), "");
  chmod(file.c_str(), 0644);
  EXPECT_NE(error_of([&] { read_private(folder / "link.pem"); }).find("chmod 600"), std::string::npos);
  chmod(file.c_str(), 0600);
  if (geteuid() == 0) {  // only root can give a file away
    ASSERT_EQ(chown(file.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    EXPECT_NE(error_of([&] { read_private(file); }).find("belongs to user 12345"), std::string::npos);
  }
}

// Protects: of all that OpenSSL can read, only a plain Ed25519 key in the one form is taken, and the error says what
// was found.
TEST_F(Keys, OtherKeysAreRefused) {
  for (const std::string kind : {"RSA", "EC", "X25519", "ED448"}) {
    const Key key = other_key(kind);
    ASSERT_TRUE(key) << kind;
    const auto read_pair = [&, file = write("other.pem", pem_of(key.get(), true), 0600)] { read_private(file); };
    EXPECT_NE(error_of(read_pair).find("wanted is ED25519"), std::string::npos) << kind << error_of(read_pair);
    EXPECT_NE(error_of([&] { public_from(pem_of(key.get(), false), "p"); }).find("wanted is ED25519"),
              std::string::npos);
  }
  const Key key = other_key("ED25519");
  const auto refused = [&](const std::string& text) {
    return error_of([&] { read_private(write("k.pem", text, 0600)); });
  };
  EXPECT_EQ(refused(pem_of(key.get(), true)), "");
  EXPECT_NE(refused(pem_of(key.get(), true, "secret")).find("is encrypted"), std::string::npos);
  EXPECT_NE(refused(pem_of(key.get(), false)).find("BEGIN PRIVATE KEY"), std::string::npos);
  EXPECT_NE(refused(pem_of(key.get(), true) + pem_of(key.get(), true)).find("more than one"), std::string::npos);
  EXPECT_NE(refused("").find("no key in PEM"), std::string::npos);
  EXPECT_NE(refused(std::string(100'000, 'x')).find("larger than"), std::string::npos);
  EXPECT_NE(error_of([&] { read_private(folder); }).find("no regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { read_private(folder / "absent"); }).find("No such file"), std::string::npos);
  EXPECT_NE(error_of([&] { public_from(pem_of(key.get(), true), "p"); }).find("BEGIN PUBLIC KEY"), std::string::npos);
}

// Protects the private key from errors: whatever is wrong with its file, no word of it is in what is said.
TEST_F(Keys, ErrorsDoNotQuoteTheFile) {
  const std::string good = text_of(new_key(folder / "k.pem").private_file);
  const std::size_t begin = good.find('\n') + 1, end = good.find("\n-----END");
  const std::string secret = good.substr(begin, end - begin);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = bad[at] == 'A' ? 'B' : 'A';
    const std::string error = error_of([&] { read_private(write("bad.pem", bad, 0600)); });
    for (std::size_t i = 0; i + 12 <= secret.size(); ++i)
      ASSERT_EQ(error.find(secret.substr(i, 12)), std::string::npos) << error;
  }
}

// Protects the ids in policies: they are what anybody computes, the SHA-256 of the DER SubjectPublicKeyInfo. The key is
// of RFC 8410, section 10.1.
TEST_F(Keys, TheIdIsThatOfTheDer) {
  const PublicKey key = public_from(
      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
      "-----END PUBLIC KEY-----\n",
      "RFC 8410");
  const unsigned char der[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00, 0x19, 0xbf, 0x44,
                               0x09, 0x69, 0x84, 0xcd, 0xfe, 0x85, 0x41, 0xba, 0xc1, 0x67, 0xdc, 0x3b, 0x96, 0xc8, 0x50,
                               0x86, 0xaa, 0x30, 0xb6, 0xb6, 0xcb, 0x0c, 0x5c, 0x38, 0xad, 0x70, 0x31, 0x66, 0xe1};
  EXPECT_EQ(keyid(key), sha256_of_bytes({reinterpret_cast<const char*>(der), sizeof der}));
}

}  // namespace
}  // namespace fractus::attest
