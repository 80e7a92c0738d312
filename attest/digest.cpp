#include "attest/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

namespace fractus::attest {
namespace {

constexpr std::size_t most_entries = 1'000'000;
constexpr int most_depth = 200;

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) broken();
  }
  void add(const void* data, std::size_t size) {
    if (EVP_DigestUpdate(context_.get(), data, size) != 1) broken();
  }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_DigestFinal_ex(context_.get(), digest, &length) != 1) broken();
    std::string text;
    for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  [[noreturn]] static void broken() { fail("SHA-256 is not available in this OpenSSL"); }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Of the entry itself, where it is a link: a tree's links are entries of their own.
std::string hash_file(const std::filesystem::path& file, int more_flags) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | more_flags);
  if (descriptor < 0) fail("cannot read '{}': {}", file.string(), std::strerror(errno));
  const std::unique_ptr<const int, void (*)(const int*)> closed(&descriptor, [](const int* d) { ::close(*d); });
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail("cannot read '{}': {}", file.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("cannot take the digest of '{}': it is no regular file", file.string());
  Sha256 hash;
  const auto buffer = std::make_unique<char[]>(1 << 20);
  while (true) {
    const ssize_t got = ::read(descriptor, buffer.get(), 1 << 20);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read '{}': {}", file.string(), std::strerror(errno));
    if (got == 0) return hash.hex();
    hash.add(buffer.get(), static_cast<std::size_t>(got));
  }
}

// By where it leads in the end, since a link may pass through others.
void require_inside(const std::filesystem::path& root, const std::filesystem::path& link) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(link, error);
  if (error)
    fail("the link '{}' leads nowhere ({}): remove it, or put its target into the folder", link.string(),
         error.message());
  const std::filesystem::path relative = target.lexically_relative(root);
  if (relative.empty() || *relative.begin() == "..")
    fail(
        "the link '{}' leads out of the folder, to '{}', which its digest would not bind: put the target into the "
        "folder",
        link.string(), target.string());
}

void add_entries(const std::filesystem::path& root, const std::filesystem::path& folder, int depth,
                 std::map<std::string, std::string>& records) {
  if (depth > most_depth) fail("'{}' lies more than {} folders deep", folder.string(), most_depth);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path& path = entry.path();
    char kind = 'f';
    std::string digest;
    const std::filesystem::file_status status = entry.symlink_status();
    switch (status.type()) {
      case std::filesystem::file_type::directory:
        kind = 'd', digest = '-';
        add_entries(root, path, depth + 1, records);
        break;
      case std::filesystem::file_type::symlink:
        require_inside(root, path);
        kind = 'l', digest = sha256_of_bytes(std::filesystem::read_symlink(path).string());
        break;
      case std::filesystem::file_type::regular:
        if ((status.permissions() & std::filesystem::perms::owner_exec) != std::filesystem::perms::none) kind = 'x';
        digest = hash_file(path, O_NOFOLLOW);
        break;
      default:
        fail("'{}' is neither file, folder nor link, and has no bytes that a digest could bind: remove it",
             path.string());
    }
    const std::string name = path.string().substr(root.string().size() + 1);
    records.emplace(name, fmt::format("{} {} {}", kind, digest, name));
    if (records.size() > most_entries) fail("'{}' holds more than {} entries", root.string(), most_entries);
  }
}

}  // namespace

std::string sha256_of_bytes(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_of(const std::filesystem::path& file) { return hash_file(file, 0); }

std::string tree_sha256(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path root = std::filesystem::canonical(folder, error);
  if (error) fail("cannot read the folder '{}': {}", folder.string(), error.message());
  if (!std::filesystem::is_directory(root)) fail("'{}' is no folder", folder.string());
  if (root == root.root_path()) fail("'{}' is the whole file system, and no candidate", folder.string());
  std::map<std::string, std::string> records;  // std::string compares by unsigned bytes
  try {
    add_entries(root, root, 0, records);
  } catch (const std::filesystem::filesystem_error& e) {
    fail("cannot take the digest of the folder '{}': {}", folder.string(), e.what());
  }
  Sha256 hash;
  constexpr char header[] = "fractus-verify tree 1";
  hash.add(header, sizeof header);  // with its NUL
  for (const auto& [path, record] : records) hash.add(record.c_str(), record.size() + 1);
  return hash.hex();
}

Digest digest_of(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return {tree_sha256_name, tree_sha256(path)};
  return {sha256_name, sha256_of(path)};
}

}  // namespace fractus::attest
