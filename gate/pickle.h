// What a pickle of torch.save says, read as data: nothing in it is called, imported or looked up. Names of functions
// and types are compared with a list; one that is not on it is refused by its name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gate/archive.h"

namespace fractus::gate {

enum class Kind {
  none,
  boolean,
  integer,
  long_integer,  // beyond 64 bits: `text` holds its bytes in hex
  real,
  text,
  bytes,
  list,
  tuple,
  set,
  dict,     // items are key, value, key, value, ...
  global,   // `text` is module.name
  applied,  // a plain value that a type makes: `text` the type's name, items the arguments, such as torch.device("cpu")
  storage,
  tensor,
};

// A piece of memory of the file, which lies in the archive under data/KEY.
struct Storage {
  std::string key, dtype;  // dtype is empty where the tensors say it
  std::int64_t elements = 0, item_bytes = 1;
  bool operator==(const Storage&) const = default;
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(item_bytes); }
};

// A view of a storage. It lies within it: that is checked when it is read.
struct View {
  std::string storage, dtype;  // the storage's key
  std::int64_t item_bytes = 0;
  std::int64_t offset = 0;  // of the first element, in elements; so are the strides
  std::vector<std::int64_t> shape, strides;

  bool empty() const;
  std::int64_t last() const;  // the furthest element, counted as offset is; only where there are elements
};

struct Value {
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also a boolean's 0 or 1; of a storage or a tensor the place in its table
  double real = 0;
  std::string text;
  std::vector<std::uint32_t> items;  // places in Pickle::values
};

// Values refer to each other by their place, so that neither depth nor a circle costs anything but memory.
struct Pickle {
  std::vector<Value> values;
  std::vector<View> views;
  std::map<std::string, Storage> storages;
  std::uint32_t root = 0;

  const Value& operator[](std::uint32_t place) const { return values[place]; }
  // A dict's value under a text, or nothing. A key that stands twice is refused when it is read.
  const Value* find(const Value& dict, std::string_view key) const;
};

inline constexpr std::uint64_t most_pickle_bytes = 64 << 20;
inline constexpr std::size_t most_values = 2'000'000;

// Of protocols 2 to 5, with the opcodes that torch.save writes. Throws Unreadable.
Pickle pickle_from(std::string_view bytes);

// Bytes of an element of a torch dtype, such as "float32"; 0 where it is not known.
int item_bytes_of(std::string_view dtype);

}  // namespace fractus::gate
