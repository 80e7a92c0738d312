#include "reports/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fractus {
namespace {

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

void replace(const std::filesystem::path& file, const std::string& text) {
  std::string temporary = file.string() + ".XXXXXX";
  const int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) fail("cannot write", file, errno);
  int error = write_all(descriptor, text);
  if (error == 0 && (::fchmod(descriptor, 0644) != 0 || ::fsync(descriptor) != 0)) error = errno;
  ::close(descriptor);
  if (error == 0 && ::rename(temporary.c_str(), file.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  fail("cannot write", file, error);
}

// A device or a pipe (/dev/null, a process substitution). A file renamed over it would take its place.
void write_into(const std::filesystem::path& file, const std::string& text) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot write", file, errno);
  int error = write_all(descriptor, text);
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) fail("cannot write", file, error);
}

}  // namespace

void write_whole(const std::filesystem::path& file, const std::string& text) {
  std::error_code ignored;  // what cannot be asked for fails below, with its reason
  const std::filesystem::file_status status = std::filesystem::status(file, ignored);
  if (std::filesystem::is_directory(status)) fail("cannot write", file, EISDIR);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) return write_into(file, text);
  // A symbolic link stays one, and its target is replaced.
  replace(std::filesystem::exists(status) ? std::filesystem::canonical(file) : file, text);
}

std::string read_whole(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) fail("cannot read", file, EISDIR);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("cannot read", file, errno);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace fractus
