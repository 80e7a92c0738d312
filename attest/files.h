// Files that are either whole or not there.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fractus {

// Writes beside the target under a temporary name, syncs, and renames; a device or a pipe is written to as it stands.
// Throws std::runtime_error with path and reason; nothing is left behind then.
void write_whole(const std::filesystem::path& file, const std::string& text);

// The same for files that belong together. Whatever happens, a new one never stands beside one of an earlier run.
void write_together(const std::vector<std::pair<std::filesystem::path, std::string>>& files);

// For a signal handler that ends the process: no temporary file stays behind.
void remove_temporaries() noexcept;

// A name for a file or a folder, made from text that may hold a path.
std::string file_name(std::string_view text);

// The text of a regular file of at most 64 MiB. Throws std::runtime_error with path and reason.
std::string read_whole(const std::filesystem::path& file);

}  // namespace fractus
