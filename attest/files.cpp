#include "attest/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>

namespace fractus {
namespace {

constexpr std::size_t most_bytes_to_read = 64 << 20;  // a kept witness has 4 MB at most

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& file, int error) {
  throw std::runtime_error(fmt::format("{} '{}': {}", what, file.string(), std::strerror(error)));
}

// Everything, or the error.
int write_all(int descriptor, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    done += static_cast<std::size_t>(written);
  }
  return 0;
}

// Names of the temporary files that are there now, where a signal handler may read them: fixed memory, never freed.
struct Slot {
  std::atomic<bool> taken = false, named = false;
  char name[4096];
};
std::array<Slot, 8> slots;

Slot* slot_for(const std::string& name) {
  for (Slot& slot : slots) {
    if (name.size() >= sizeof slot.name || slot.taken.exchange(true)) continue;
    std::memcpy(slot.name, name.c_str(), name.size() + 1);
    slot.named = true;
    return &slot;
  }
  return nullptr;
}

// The new text of a file, beside it until it takes its place.
class Temporary {
 public:
  Temporary(const std::filesystem::path& file, const std::string& text) : file_(file), target_(target_of(file)) {
    name_ = target_.string() + ".XXXXXX";
    const int descriptor = ::mkstemp(name_.data());
    if (descriptor < 0) fail("cannot write", file_, errno);
    slot_ = slot_for(name_);
    int error = write_all(descriptor, text);
    if (error == 0 && (::fchmod(descriptor, 0644) != 0 || ::fsync(descriptor) != 0)) error = errno;
    if (::close(descriptor) != 0 && error == 0) error = errno;
    if (error == 0) return;
    discard();
    fail("cannot write", file_, error);
  }
  Temporary(const Temporary&) = delete;
  ~Temporary() { discard(); }

  void remove_old() const { ::unlink(target_.c_str()); }

  void take_place() {
    if (::rename(name_.c_str(), target_.c_str()) != 0) fail("cannot write", file_, errno);
    name_.clear();
    release();
  }

 private:
  // A symbolic link stays one, and its target is replaced.
  static std::filesystem::path target_of(const std::filesystem::path& file) {
    return std::filesystem::exists(file) ? std::filesystem::canonical(file) : file;
  }

  void release() {
    if (slot_ == nullptr) return;
    slot_->named = false;
    slot_->taken = false;
    slot_ = nullptr;
  }

  void discard() {
    if (!name_.empty()) ::unlink(name_.c_str());
    name_.clear();
    release();
  }

  std::filesystem::path file_, target_;
  std::string name_;  // empty once it has gone
  Slot* slot_ = nullptr;
};

// A device or a pipe (/dev/null, a process substitution). A file renamed over it would take its place.
void write_into(const std::filesystem::path& file, const std::string& text) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot write", file, errno);
  int error = write_all(descriptor, text);
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) fail("cannot write", file, error);
}

}  // namespace

void write_together(const std::vector<std::pair<std::filesystem::path, std::string>>& files) {
  std::deque<Temporary> temporaries;
  std::vector<const std::pair<std::filesystem::path, std::string>*> special;
  for (const auto& file : files) {
    std::error_code ignored;  // what cannot be asked for fails below, with its reason
    const std::filesystem::file_status status = std::filesystem::status(file.first, ignored);
    if (std::filesystem::is_directory(status)) fail("cannot write", file.first, EISDIR);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
      special.push_back(&file);
    else
      temporaries.emplace_back(file.first, file.second);
  }
  // A process may end between two renames. That the old files are gone then is better than a pair of two runs.
  if (temporaries.size() > 1)
    for (const Temporary& temporary : temporaries) temporary.remove_old();
  for (std::size_t i = 0; i < temporaries.size(); ++i) {
    try {
      temporaries[i].take_place();
    } catch (...) {
      for (std::size_t placed = 0; placed < i; ++placed) temporaries[placed].remove_old();
      throw;
    }
  }
  for (const auto* file : special) write_into(file->first, file->second);
}

void write_whole(const std::filesystem::path& file, const std::string& text) { write_together({{file, text}}); }

void remove_temporaries() noexcept {
  for (Slot& slot : slots)
    if (slot.named) ::unlink(slot.name);
}

std::string file_name(std::string_view text) {
  constexpr std::size_t longest = 150;  // the kernel allows 255, and some is put before and behind it
  std::string name(text.substr(text.size() - std::min(text.size(), longest)));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.' && c != '-') c = '-';
  return name;
}

std::string read_whole(const std::filesystem::path& file) {
  // Opened without waiting: a pipe that nobody writes to would hold us for ever, and so would a device without an end.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail("cannot read", file, errno);
  const std::unique_ptr<const int, void (*)(const int*)> closed(&descriptor, [](const int* d) { ::close(*d); });
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail("cannot read", file, errno);
  if (S_ISDIR(status.st_mode)) fail("cannot read", file, EISDIR);
  if (!S_ISREG(status.st_mode))
    throw std::runtime_error(fmt::format("cannot read '{}': it is no regular file", file.string()));
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", file, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    if (text.size() > most_bytes_to_read)
      throw std::runtime_error(
          fmt::format("cannot read '{}': it is larger than {} bytes", file.string(), most_bytes_to_read));
  }
}

}  // namespace fractus
