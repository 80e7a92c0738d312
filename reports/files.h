// Files that are either whole or not there.
#pragma once

#include <filesystem>
#include <string>

namespace fractus {

// Writes beside the target under a temporary name, syncs, and renames; a device or a pipe is written to as it stands.
// Throws std::runtime_error with path and reason; nothing is left behind then.
void write_whole(const std::filesystem::path& file, const std::string& text);

// The text of a file. Throws std::runtime_error with path and reason.
std::string read_whole(const std::filesystem::path& file);

}  // namespace fractus
