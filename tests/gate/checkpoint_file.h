// .pt files byte by byte, right and wrong ones: what torch.save writes, put together without torch or a zip library, so
// that any part of it can be made to lie.
#pragma once

#include <boost/crc.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fractus::gate::file {

inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// Pickles: each function gives the opcodes that leave one value on the stack.
inline std::string text(std::string_view value) { return "X" + little(value.size(), 4) + std::string(value); }
inline std::string count(std::int64_t value) { return "\x8a\x08" + little(static_cast<std::uint64_t>(value), 8); }
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string all = "(";
  for (const std::string& item : items) all += item;
  return all + "t";
}
inline std::string counts(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(count(value));
  return tuple(items);
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string all = "}(";
  for (const auto& [key, value] : items) all += key + value;
  return all + "u";
}
inline std::string call(const std::string& function, const std::vector<std::string>& arguments) {
  return function + tuple(arguments) + "R";
}
inline std::string ordered_dict() { return global("collections", "OrderedDict") + ")R"; }
inline std::string storage(const std::string& key, std::int64_t elements, const std::string& type = "FloatStorage") {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), count(elements)}) + "Q";
}
inline std::string tensor(const std::string& storage, std::int64_t offset, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, count(offset), counts(shape), counts(strides), "\x89", ordered_dict()});
}
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

struct Entry {
  std::string name, bytes;
  std::uint16_t method = 0;      // 0: stored
  std::string header_name = "";  // in the entry's own header, where it is to be another one
  std::int64_t same_as = -1;     // the data of an earlier entry, which both point to
};

inline std::string zip(const std::vector<Entry>& entries, const std::string& comment = "") {
  std::string all, directory;
  std::vector<std::size_t> places;
  for (const Entry& entry : entries) {
    boost::crc_32_type crc;
    crc.process_bytes(entry.bytes.data(), entry.bytes.size());
    const auto fields = [&](std::size_t name_bytes) {
      return little(20, 2) + little(0, 2) + little(entry.method, 2) + little(0, 2) + little(0x21, 2) +
             little(crc.checksum(), 4) + little(entry.bytes.size(), 4) + little(entry.bytes.size(), 4) +
             little(name_bytes, 2) + little(0, 2);
    };
    const std::string& own = entry.header_name.empty() ? entry.name : entry.header_name;
    places.push_back(entry.same_as < 0 ? all.size() : places[static_cast<std::size_t>(entry.same_as)]);
    if (entry.same_as < 0) all += "PK\3\4" + fields(own.size()) + own + entry.bytes;
    directory += "PK\1\2" + little(20, 2) + fields(entry.name.size()) + little(0, 2) + little(0, 2) + little(0, 2) +
                 little(0, 4) + little(places.back(), 4) + entry.name;
  }
  const std::size_t begin = all.size();
  return all + directory + "PK\5\6" + little(0, 4) + little(entries.size(), 2) + little(entries.size(), 2) +
         little(directory.size(), 4) + little(begin, 4) + little(comment.size(), 2) + comment;
}

inline std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// w (2, 3) and b (3), which share nothing, and a config of two settings.
inline std::string pickle(const std::string& w = "w", const std::string& config = "") {
  return whole(
      dict({{text("model_state"), dict({{text(w), tensor(storage("0", 6), 0, {2, 3}, {3, 1})},
                                        {text("b"), tensor(storage("1", 3), 0, {3}, {1})}})},
            {text("config"), config.empty() ? dict({{text("n_heads"), count(4)}, {text("lr"), count(1)}}) : config}}));
}
inline std::vector<Entry> entries(const std::string& pickled = pickle()) {
  return {{"run/data.pkl", pickled},
          {"run/byteorder", "little"},
          {"run/data/0", floats({1, 2, 3, 4, 5, 6})},
          {"run/data/1", floats({1, 2, 3})},
          {"run/version", "3\n"}};
}
inline std::string checkpoint(const std::string& pickled = pickle()) { return zip(entries(pickled)); }

}  // namespace fractus::gate::file
