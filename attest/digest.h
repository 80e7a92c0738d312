// SHA-256 of bytes, of files, and of folders. All digests are 64 lower-case hex digits.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fractus::attest {

std::string sha256_of_bytes(std::string_view bytes);

// Of a regular file of any size, read in pieces. Throws std::runtime_error with path and reason; so does the next.
std::string sha256_of(const std::filesystem::path& file);

// Of everything in a folder: the SHA-256 of "fractus-verify tree 1\0" and then, for each entry in it at any depth,
// sorted by the bytes of the paths, KIND ' ' DIGEST ' ' PATH '\0'.
// - PATH is relative to the folder, with '/' between names.
// - KIND is f for a file, x for a file that its owner may execute, d for a folder, l for a symbolic link.
// - DIGEST is the SHA-256 of a file's bytes or of a link's text, and '-' for a folder.
// Folders count, since an empty one can be a Python package. __pycache__ counts, since Python runs what lies there in
// place of the source beside it. A link that leads nowhere or out of the folder, and what is neither file, folder nor
// link, is refused: bytes that the digest would not bind could be loaded by way of it.
std::string tree_sha256(const std::filesystem::path& folder);

inline constexpr const char* sha256_name = "sha256";
inline constexpr const char* tree_sha256_name = "tree-sha256";

// A regular file's or a folder's digest and its algorithm, by what lies at the path.
struct Digest {
  std::string algorithm, hex;
  bool operator==(const Digest&) const = default;
};
Digest digest_of(const std::filesystem::path& path);

}  // namespace fractus::attest
