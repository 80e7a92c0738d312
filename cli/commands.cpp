#include "cli/commands.h"

#include <fmt/format.h>

#include <cstdlib>

#include "attest/files.h"
#include "cli/streams.h"

namespace fractus::cli {

std::filesystem::path root() {
  if (const char* given = std::getenv("FRACTUS_ROOT"); given != nullptr && *given != '\0') return given;
  // <root>/build/<preset>/bin/fractus-verify
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path().parent_path().parent_path();
}

void write_json(const std::string& file, const std::string& text) {
  if (file == "-")
    print_whole(text);
  else
    write_whole(file, text);
}

void try_to_write(const std::string& what, const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& e) {
    say(fmt::format("fractus-verify: {} was not written: {}. The verdict stands.\n", what, e.what()));
  }
}

}  // namespace fractus::cli
