#include "attest/keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "attest/digest.h"

namespace fractus::attest {
namespace {

constexpr std::size_t most_bytes = 64 << 10;  // an Ed25519 key in PEM has 120

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  ERR_clear_error();  // what OpenSSL noted may quote what it read
  throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

// Text of a key, wiped when it goes.
struct Secret {
  std::string text;
  Secret() { text.reserve(most_bytes + 1); }  // it never moves, which would leave a copy behind
  Secret(const Secret&) = delete;
  ~Secret() { OPENSSL_cleanse(text.data(), text.capacity()); }
};

struct Closed {
  int descriptor;
  ~Closed() { ::close(descriptor); }
};

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Pkey = std::shared_ptr<EVP_PKEY>;

Pkey shared(EVP_PKEY* key) { return {key, EVP_PKEY_free}; }

// What is checked is the opened file and not its name, so that nobody can put another one in its place in between. A
// link is followed: secrets are often mounted as links.
struct stat read_into(Secret& secret, const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail("cannot read the key '{}': {}", file.string(), std::strerror(errno));
  const Closed closed{descriptor};
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail("cannot read the key '{}': {}", file.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("cannot read the key '{}': it is no regular file", file.string());
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(descriptor, buffer, sizeof buffer)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    const bool too_long = got > 0 && secret.text.size() + static_cast<std::size_t>(got) > most_bytes;
    if (got > 0 && !too_long) secret.text.append(buffer, static_cast<std::size_t>(got));
    const int error = errno;
    OPENSSL_cleanse(buffer, sizeof buffer);
    if (got < 0) fail("cannot read the key '{}': {}", file.string(), std::strerror(error));
    if (too_long) fail("'{}' is no key: it is larger than {} bytes", file.string(), most_bytes);
  }
  return status;
}

void require_own(const struct stat& status, const std::filesystem::path& file) {
  if (status.st_uid != ::geteuid())
    fail("the private key '{}' belongs to user {}, and this is user {}: a signer keeps a key of its own", file.string(),
         status.st_uid, ::geteuid());
  if ((status.st_mode & 077) != 0)
    fail(
        "the private key '{}' has mode {:04o}, open to group or others: chmod 600 '{}', and make a new key where "
        "somebody may have read it",
        file.string(), status.st_mode & 07777, file.string());
}

// Without an answer of ours OpenSSL would ask at the terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

std::string kind_of(const EVP_PKEY* key) {
  const char* name = EVP_PKEY_get0_type_name(key);
  return name == nullptr ? "of another kind" : name;
}

using Reader = EVP_PKEY*(BIO*, EVP_PKEY**, pem_password_cb*, void*);

Pkey key_from(std::string_view pem, const std::string& name, const char* label, const char* what, Reader* reader) {
  // OpenSSL takes the first block that fits and reads past all others. Of two keys nobody could say which it is.
  constexpr std::string_view begin = "-----BEGIN ";
  const auto first = pem.find(begin);
  if (first == std::string_view::npos) fail("'{}' is no key in PEM: it has no line '{}...'", name, begin);
  if (pem.find(begin, first + 1) != std::string_view::npos)
    fail("'{}' holds more than one PEM block: wanted one {} key", name, what);
  if (pem.substr(first).starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----") ||
      pem.find("Proc-Type: 4,ENCRYPTED") != std::string_view::npos)
    fail(
        "the key '{}' is encrypted, and nobody is here to give its passphrase: decrypt it into a file of mode 600 with "
        "'openssl pkey -in KEY -out FILE'",
        name);
  if (!pem.substr(first).starts_with(fmt::format("-----BEGIN {}-----", label)))
    fail("'{}' is no {} key in PEM: wanted '-----BEGIN {}-----'; 'openssl pkey' converts one", name, what, label);
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  if (!bio) fail("no memory for the key '{}'", name);
  const Pkey key = shared(reader(bio.get(), nullptr, no_passphrase, nullptr));
  if (!key) fail("'{}' is no {} key that OpenSSL can read: its PEM is damaged", name, what);
  if (EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519)
    fail("the key '{}' is {}, and wanted is ED25519: make one with 'fractus-verify key new FILE.pem'", name,
         kind_of(key.get()));
  ERR_clear_error();
  return key;
}

void write_new(const std::filesystem::path& file, const char* data, std::size_t size, mode_t mode) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (descriptor < 0 && errno == EEXIST)
    fail("'{}' is there already, and a key is never written over: name another file, or move that one away",
         file.string());
  if (descriptor < 0) fail("cannot write '{}': {}", file.string(), std::strerror(errno));
  int error = ::fchmod(descriptor, mode) == 0 ? 0 : errno;  // whatever the umask
  for (std::size_t done = 0; error == 0 && done < size;) {
    const ssize_t written = ::write(descriptor, data + done, size - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      error = written < 0 ? errno : EIO;
    else
      done += static_cast<std::size_t>(written);
  }
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error == 0) return;
  ::unlink(file.c_str());
  fail("cannot write '{}': {}", file.string(), std::strerror(error));
}

std::filesystem::path public_name(std::filesystem::path file) {
  return file.extension() == ".pem" ? file.replace_extension(".pub.pem") : file += ".pub.pem";
}

}  // namespace

PrivateKey read_private(const std::filesystem::path& file) {
  Secret secret;
  const struct stat status = read_into(secret, file);
  // Last, so that a public key given by mistake is called that.
  Pkey key = key_from(secret.text, file.string(), "PRIVATE KEY", "private", PEM_read_bio_PrivateKey);
  require_own(status, file);
  return {std::move(key)};
}

PublicKey read_public(const std::filesystem::path& file) {
  Secret secret;  // it may be a private one by mistake
  read_into(secret, file);
  return public_from(secret.text, file.string());
}

PublicKey public_from(std::string_view pem, const std::string& name) {
  if (pem.size() > most_bytes) fail("'{}' is no key: it is larger than {} bytes", name, most_bytes);
  return {key_from(pem, name, "PUBLIC KEY", "public", PEM_read_bio_PUBKEY)};
}

PublicKey public_of(const PrivateKey& key) {
  unsigned char raw[32];
  std::size_t size = sizeof raw;
  if (EVP_PKEY_get_raw_public_key(key.key.get(), raw, &size) != 1) fail("the private key has no public part");
  Pkey made = shared(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw, size));
  if (!made) fail("OpenSSL makes no public key of the private one");
  return {std::move(made)};
}

std::string keyid(const PublicKey& key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key.key.get(), &der);
  if (size <= 0) fail("OpenSSL does not encode the public key");
  const std::unique_ptr<unsigned char, void (*)(unsigned char*)> freed(der, [](unsigned char* p) { OPENSSL_free(p); });
  return sha256_of_bytes({reinterpret_cast<const char*>(der), static_cast<std::size_t>(size)});
}

NewKey new_key(const std::filesystem::path& file) {
  const Pkey key = shared(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (!key) fail("OpenSSL makes no Ed25519 key");
  // Private text in memory that OpenSSL wipes when it frees it.
  const Bio secret(BIO_new(BIO_s_secmem()), BIO_free), open(BIO_new(BIO_s_mem()), BIO_free);
  if (!secret || !open ||
      PEM_write_bio_PKCS8PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
      PEM_write_bio_PUBKEY(open.get(), key.get()) != 1)
    fail("OpenSSL does not write the key as PEM");
  NewKey made{file, public_name(file), keyid({key})};
  std::error_code ignored;  // the creation below says what is wrong
  if (std::filesystem::exists(std::filesystem::symlink_status(made.public_file, ignored)))
    fail("'{}' is there already, and a key is never written over: name another file, or move that one away",
         made.public_file.string());
  char* data = nullptr;
  long size = BIO_get_mem_data(secret.get(), &data);
  write_new(made.private_file, data, static_cast<std::size_t>(size), 0600);
  try {
    size = BIO_get_mem_data(open.get(), &data);
    write_new(made.public_file, data, static_cast<std::size_t>(size), 0644);
  } catch (...) {
    ::unlink(made.private_file.c_str());
    throw;
  }
  return made;
}

}  // namespace fractus::attest
