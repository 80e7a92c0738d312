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

}  // namespace

void write_whole(const std::filesystem::path& file, const std::string& text) {
  std::string temporary = file.string() + ".XXXXXX";
  const int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) fail("cannot write", file, errno);
  const auto give_up = [&](int error) {
    ::close(descriptor);
    ::unlink(temporary.c_str());
    fail("cannot write", file, error);
  };
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) give_up(errno);
    done += static_cast<std::size_t>(written);
  }
  if (::fchmod(descriptor, 0644) != 0 || ::fsync(descriptor) != 0) give_up(errno);
  ::close(descriptor);
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail("cannot write", file, error);
  }
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
