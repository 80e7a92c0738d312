#include "cli/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "reports/files.h"

namespace fractus::cli {

std::filesystem::path root() {
  if (const char* given = std::getenv("FRACTUS_ROOT"); given != nullptr && *given != '\0') return given;
  // <root>/build/<preset>/bin/fractus-verify
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path().parent_path().parent_path();
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

void write_json(const std::string& file, const std::string& text) {
  if (file == "-")
    fmt::print("{}", text);
  else
    write_whole(file, text);
}

}  // namespace fractus::cli
