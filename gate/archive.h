// The archive of a .pt file, read by name. Names in it are looked up and compared, never used as paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fractus::gate {

// A file that is no checkpoint, or not one that may be relied on: what is wrong, without the file's name, and what to
// do.
struct Unreadable : std::runtime_error {
  Unreadable(const std::string& fact, std::string remedy_) : std::runtime_error(fact), remedy(std::move(remedy_)) {}
  std::string remedy;
};

// A text of the file's, in quotes and printable, cut where it is long.
std::string in_quotes(std::string_view text);

inline constexpr const char* save_again = "save it again with torch.save, and give the file that it wrote";

// Opens a zip archive as torch.save writes it: every entry stored as it is, in one folder, no name twice. Opening reads
// the directory and each entry's header, no entry's content. Throws Unreadable.
class Archive {
 public:
  explicit Archive(const std::filesystem::path& file);
  Archive(Archive&&) noexcept;
  ~Archive();

  bool holds(const std::string& name) const;  // names are relative to the one folder
  std::uint64_t size(const std::string& name) const;
  std::string read(const std::string& name, std::uint64_t most_bytes) const;
  // The content in pieces, in order; at its end the entry's checksum has been verified.
  void stream(const std::string& name, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

}  // namespace fractus::gate
