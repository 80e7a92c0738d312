#include "gate/archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

namespace fractus::gate {
namespace {

constexpr std::uint64_t most_entries = 1'000'000, most_directory_bytes = 256 << 20;
constexpr std::size_t most_name_bytes = 1024;

// torch looks an entry up without regard to case (miniz, mz_zip_reader_locate_file with no flags), so two names that
// differ in case alone are one name to it.
std::string folded(std::string_view name) {
  std::string text(name);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool leaves_folder(std::string_view name) {
  return name.find("..") != name.npos || name.find('\\') != name.npos || name.starts_with('/');
}

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// Without waiting: nobody may write to a pipe of that name.
int open_regular(const std::filesystem::path& file, std::uint64_t& bytes) {
  Descriptor descriptor{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.value < 0)
    throw Unreadable(fmt::format("it cannot be opened: {}", std::strerror(errno)),
                     "name a file that is there and readable");
  struct stat status {};
  if (::fstat(descriptor.value, &status) != 0 || !S_ISREG(status.st_mode))
    throw Unreadable("it is no regular file", "name the file itself");
  bytes = static_cast<std::uint64_t>(status.st_size);
  return std::exchange(descriptor.value, -1);
}

// What begins as no zip archive does, by its first bytes.
void require_zip(int descriptor) {
  unsigned char start[4] = {};
  const ssize_t got = ::pread(descriptor, start, sizeof start, 0);
  if (got == 0) throw Unreadable("it is empty", "write the checkpoint again: to a temporary name, then rename it");
  if (got == 4 && std::memcmp(start, "PK\3\4", 4) == 0) return;
  if (got >= 2 && start[0] == 0x80 && start[1] <= 5)
    throw Unreadable(
        "it is a bare pickle, as torch.save wrote before version 1.6 or with "
        "_use_new_zipfile_serialization=False",
        "load it where it is trusted, save it again with torch.save in the zip format, and give that file");
  throw Unreadable("it does not begin as a zip archive, which torch.save writes", save_again);
}

// Sizes of the directory as the file's last bytes say them, before a library makes room for it. They must be the last:
// text behind the directory could hold a second one, and two readers might each take another one.
void require_directory_at_end(int descriptor, std::uint64_t bytes) {
  constexpr std::uint64_t end_bytes = 22, locator_bytes = 20, wide_bytes = 56;
  unsigned char held[wide_bytes];
  const auto read_at = [&](std::uint64_t at, std::uint64_t count, const char* signature) {
    return at < bytes && ::pread(descriptor, held, count, static_cast<off_t>(at)) == static_cast<ssize_t>(count) &&
           std::memcmp(held, signature, 4) == 0;
  };
  const auto number = [&](int at, int count) {
    std::uint64_t value = 0;
    for (int i = count; i-- > 0;) value = value << 8 | held[at + i];
    return value;
  };
  const auto damaged = [] {
    return Unreadable("its zip archive is cut short, or something stands behind its directory",
                      "give a whole file: write to a temporary name, then rename it");
  };
  if (bytes < end_bytes || !read_at(bytes - end_bytes, end_bytes, "PK\5\6") || number(20, 2) != 0) throw damaged();
  std::uint64_t entries = number(10, 2), size = number(12, 4);
  if (entries == 0xffff || size == 0xffffffff || number(16, 4) == 0xffffffff) {  // the wide numbers of zip64
    if (bytes < end_bytes + locator_bytes || !read_at(bytes - end_bytes - locator_bytes, locator_bytes, "PK\6\7"))
      throw damaged();
    const std::uint64_t at = number(8, 8);
    if (at > bytes || !read_at(at, wide_bytes, "PK\6\6")) throw damaged();
    entries = number(32, 8);
    size = number(40, 8);
  }
  if (entries > most_entries || size > most_directory_bytes)
    throw Unreadable(fmt::format("its archive has {} entries in a directory of {} bytes, wanted {} and {} at most",
                                 entries, size, most_entries, most_directory_bytes),
                     save_again);
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 200;
  const nlohmann::json cut = text.size() > most ? std::string(text.substr(0, most)) + "..." : std::string(text);
  return cut.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

struct Archive::Open {
  struct Entry {
    std::uint64_t index, size;
  };
  zip_t* zip = nullptr;
  std::unordered_map<std::string, Entry> entries;  // by folded name, without the folder

  ~Open() {
    if (zip != nullptr) zip_discard(zip);
  }

  const Entry& entry(const std::string& name) const {
    const auto found = entries.find(folded(name));
    if (found == entries.end()) throw Unreadable(fmt::format("its archive has no {}", in_quotes(name)), save_again);
    return found->second;
  }
};

Archive::Archive(const std::filesystem::path& file) : open_(std::make_unique<Open>()) {
  std::uint64_t bytes = 0;
  Descriptor descriptor{open_regular(file, bytes)};
  require_zip(descriptor.value);
  require_directory_at_end(descriptor.value, bytes);
  std::FILE* stream = ::fdopen(descriptor.value, "rb");
  if (stream == nullptr) throw Unreadable(fmt::format("it cannot be opened: {}", std::strerror(errno)), "try again");
  descriptor.value = -1;  // the stream has it
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_filep_create(stream, 0, -1, &error);
  if (source == nullptr) std::fclose(stream);
  // CHECKCONS: each entry's own header is read too, and must say what the directory says of it. torch believes the
  // directory, other readers the header.
  if (source != nullptr) open_->zip = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  if (open_->zip == nullptr) {
    const std::string reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (source != nullptr) zip_source_free(source);
    throw Unreadable(fmt::format("its zip archive is damaged or cut short: {}", reason),
                     "give a whole file: write to a temporary name, then rename it");
  }
  zip_error_fini(&error);

  const zip_int64_t count = zip_get_num_entries(open_->zip, 0);
  if (count <= 0 || static_cast<std::uint64_t>(count) > most_entries)
    throw Unreadable(fmt::format("its archive has {} entries, wanted 1 to {}", count, most_entries), save_again);
  std::string folder;
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    zip_stat_t status;
    constexpr zip_uint64_t wanted =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(open_->zip, i, ZIP_FL_ENC_RAW, &status) != 0 || (status.valid & wanted) != wanted)
      throw Unreadable(fmt::format("entry {} of its archive cannot be read", i), save_again);
    const std::string_view name = status.name;
    if (name.size() > most_name_bytes || leaves_folder(name))
      throw Unreadable(
          fmt::format("its archive has an entry named {}, which torch.save does not write", in_quotes(name)),
          "do not use it: find out who wrote it");
    const std::size_t slash = name.find('/');
    if (slash == name.npos || slash == 0 || (i > 0 && name.substr(0, slash) != folder))
      throw Unreadable(
          fmt::format("entry {} of its archive does not lie in the one folder of all entries", in_quotes(name)),
          save_again);
    if (i == 0) folder = name.substr(0, slash);
    if (status.comp_method != ZIP_CM_STORE || status.encryption_method != ZIP_EM_NONE ||
        status.size != status.comp_size)
      throw Unreadable(
          fmt::format("entry {} of its archive is compressed or encrypted; torch.save stores entries as they are",
                      in_quotes(name)),
          save_again);
    // Stored entries that do not overlap fit into the file together.
    if (status.size > bytes - total)
      throw Unreadable("the entries of its archive are larger together than the file: some overlap", save_again);
    total += status.size;
    if (!open_->entries.emplace(folded(name.substr(slash + 1)), Open::Entry{i, status.size}).second)
      throw Unreadable(fmt::format("its archive has two entries named {}", in_quotes(name)),
                       "do not use it: two readers may take different ones");
  }
}

Archive::Archive(Archive&&) noexcept = default;
Archive::~Archive() = default;

bool Archive::holds(const std::string& name) const { return open_->entries.contains(folded(name)); }

std::uint64_t Archive::size(const std::string& name) const { return open_->entry(name).size; }

std::string Archive::read(const std::string& name, std::uint64_t most_bytes) const {
  if (const std::uint64_t bytes = size(name); bytes > most_bytes)
    throw Unreadable(
        fmt::format("entry {} of its archive has {} bytes, wanted {} at most", in_quotes(name), bytes, most_bytes),
        save_again);
  std::string text;
  stream(name, [&](std::string_view piece) { text.append(piece); });
  return text;
}

void Archive::stream(const std::string& name, const std::function<void(std::string_view)>& piece) const {
  const Open::Entry& entry = open_->entry(name);
  const auto damaged = [&] {
    return Unreadable(
        fmt::format("entry {} of its archive is damaged: its checksum or its length is wrong", in_quotes(name)),
        "do not use it: go back to the checkpoint before it");
  };
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> opened(zip_fopen_index(open_->zip, entry.index, 0),
                                                                 zip_fclose);
  if (opened == nullptr) throw damaged();
  std::vector<char> buffer(1 << 20);
  for (std::uint64_t done = 0;;) {
    const zip_int64_t got = zip_fread(opened.get(), buffer.data(), buffer.size());
    if (got < 0) throw damaged();
    if (got == 0) {
      if (done != entry.size) throw damaged();
      return;
    }
    done += static_cast<std::uint64_t>(got);
    if (done > entry.size) throw damaged();
    piece({buffer.data(), static_cast<std::size_t>(got)});
  }
}

}  // namespace fractus::gate
