#include "gate/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>

namespace fractus::gate {
namespace {

constexpr std::size_t most_dimensions = 64;  // torch's own limit
constexpr std::size_t most_key_bytes = 255;
constexpr std::size_t most_depth = 10'000;
__extension__ typedef __int128 Wide;  // where two counts of 64 bits are multiplied

struct Dtype {
  const char* name;
  int bytes;
  const char* storage;  // the type of a storage that holds it; null where storages are untyped
};
constexpr Dtype dtypes[] = {
    {"float32", 4, "FloatStorage"},
    {"float64", 8, "DoubleStorage"},
    {"float16", 2, "HalfStorage"},
    {"bfloat16", 2, "BFloat16Storage"},
    {"int64", 8, "LongStorage"},
    {"int32", 4, "IntStorage"},
    {"int16", 2, "ShortStorage"},
    {"int8", 1, "CharStorage"},
    {"uint8", 1, "ByteStorage"},
    {"bool", 1, "BoolStorage"},
    {"complex64", 8, "ComplexFloatStorage"},
    {"complex128", 16, "ComplexDoubleStorage"},
    {"complex32", 4, nullptr},
    {"uint16", 2, nullptr},
    {"uint32", 4, nullptr},
    {"uint64", 8, nullptr},
    {"float8_e4m3fn", 1, nullptr},
    {"float8_e5m2", 1, nullptr},
    {"float8_e4m3fnuz", 1, nullptr},
    {"float8_e5m2fnuz", 1, nullptr},
    {"float8_e8m0fnu", 1, nullptr},
};

constexpr std::string_view rebuild_v2 = "torch._utils._rebuild_tensor_v2",
                           rebuild_v3 = "torch._utils._rebuild_tensor_v3",
                           rebuild_parameter = "torch._utils._rebuild_parameter",
                           rebuild_parameter_with_state = "torch._utils._rebuild_parameter_with_state",
                           rebuild_from_type = "torch._tensor._rebuild_from_type_v2",
                           untyped_storage = "torch.storage.UntypedStorage";

const Dtype* dtype_named(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(dtypes), std::end(dtypes), [&](const Dtype& d) { return name == d.name; });
  return found == std::end(dtypes) ? nullptr : found;
}

const Dtype* dtype_of_storage(std::string_view global) {
  for (const std::string_view module : {"torch.", "torch.cuda."})
    for (const Dtype& dtype : dtypes)
      if (dtype.storage != nullptr && global.starts_with(module) && global.substr(module.size()) == dtype.storage)
        return &dtype;
  return nullptr;
}

// Values that a type makes of plain arguments and that can stand in a config.
bool makes_plain_value(std::string_view global) {
  static const std::set<std::string_view> names = {"_codecs.encode", "builtins.bytearray", "builtins.complex",
                                                   "torch.device", "torch.serialization._get_layout"};
  return names.contains(global);
}

// What torch's own restricted reader takes (torch/_weights_only_unpickler.py), less what no checkpoint of dense
// parameters holds: sparse, quantised, nested and storage-less tensors and tensor subclasses.
bool known(std::string_view global) {
  static const std::set<std::string_view> names = {rebuild_v2,
                                                   rebuild_v3,
                                                   rebuild_parameter,
                                                   rebuild_parameter_with_state,
                                                   rebuild_from_type,
                                                   untyped_storage,
                                                   "torch.Size",
                                                   "collections.OrderedDict",
                                                   "collections.Counter",
                                                   "builtins.set",
                                                   "torch.Tensor",
                                                   "torch.nn.parameter.Parameter"};
  return names.contains(global) || makes_plain_value(global) || dtype_of_storage(global) != nullptr ||
         (global.starts_with("torch.") && dtype_named(global.substr(6)) != nullptr);
}

Unreadable malformed(std::string_view what, std::size_t at) {
  return {fmt::format("its data.pkl is not what torch.save writes: {} at byte {}", what, at), save_again};
}

bool is_utf8(std::string_view text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Pickle run() {
    if (bytes_.size() > most_pickle_bytes)
      throw Unreadable(fmt::format("its data.pkl has {} bytes, wanted {} at most", bytes_.size(), most_pickle_bytes),
                       save_again);
    while (step()) {
    }
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { throw malformed(what, opcode_at_); }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail(fmt::format("{} bytes wanted, {} left", count, bytes_.size() - at_));
    at_ += static_cast<std::size_t>(count);
    return bytes_.substr(at_ - static_cast<std::size_t>(count), static_cast<std::size_t>(count));
  }

  std::uint64_t little(int count) {
    const std::string_view bytes = take(static_cast<std::uint64_t>(count));
    std::uint64_t value = 0;
    for (int i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    return value;
  }

  std::string line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos || end - at_ > most_key_bytes) fail("a name without an end");
    const std::string text(take(end - at_));
    ++at_;
    return text;
  }

  std::uint32_t make(Value value) {
    items_ += value.items.size();  // a large list that is copied again and again counts each time
    limit(pickle_.values.size());
    limit(items_ / 4);
    pickle_.values.push_back(std::move(value));
    return static_cast<std::uint32_t>(pickle_.values.size() - 1);
  }

  static void limit(std::size_t count) {
    if (count >= most_values)
      throw Unreadable(fmt::format("its data.pkl has more than {} values", most_values), save_again);
  }

  void push(std::uint32_t place) { stack_.push_back(place); }
  void push(Value value) { push(make(std::move(value))); }
  Value& at(std::uint32_t place) { return pickle_.values[place]; }

  // Nothing below the last mark belongs to the value that is being made.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::uint32_t top() const {
    if (stack_.size() <= floor()) fail("an empty stack");
    return stack_.back();
  }

  std::uint32_t pop() {
    const std::uint32_t place = top();
    stack_.pop_back();
    return place;
  }

  std::vector<std::uint32_t> pop_mark() {
    if (marks_.empty()) fail("no mark");
    std::vector<std::uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_text(std::uint64_t length) {
    const std::string_view text = take(length);
    if (!is_utf8(text)) fail("a text that is no UTF-8");
    push({.kind = Kind::text, .text = std::string(text)});
  }

  void push_tuple(std::size_t count) {
    if (stack_.size() - floor() < count) fail("an empty stack");
    std::vector<std::uint32_t> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    push({.kind = Kind::tuple, .items = std::move(items)});
  }

  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) {
      Value big{.kind = Kind::long_integer};
      for (std::size_t i = bytes.size(); i-- > 0;)
        big.text += fmt::format("{:02x}", static_cast<unsigned char>(bytes[i]));
      return push(std::move(big));
    }
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    const int unused = 64 - 8 * static_cast<int>(bytes.size());
    // Two's complement of that many bytes: the top bit is the sign.
    const std::int64_t integer = bytes.empty() ? 0 : static_cast<std::int64_t>(value << unused) >> unused;
    push({.kind = Kind::integer, .integer = integer});
  }

  void push_global(std::string module, const std::string& name) {
    if (module == "__builtin__") module = "builtins";  // as protocol 2 spells it
    const std::string global = module + "." + name;
    if (!known(global))
      throw Unreadable(
          fmt::format("its data.pkl names {}, which a checkpoint of tensors and plain values does not need",
                      in_quotes(global)),
          "do not load it with weights_only=False; save model_state and config alone, the config as plain "
          "numbers, texts, lists and dicts");
    push({.kind = Kind::global, .text = global});
  }

  // A text or a number as a key is compared by what it is; anything else is a key of its own.
  static std::optional<std::string> key_text(const Value& key) {
    switch (key.kind) {
      case Kind::text: return "t" + key.text;
      case Kind::boolean:
      case Kind::integer: return fmt::format("i{}", key.integer);  // True and 1 are one key in Python
      default: return std::nullopt;
    }
  }

  void set_items(std::uint32_t dict, const std::vector<std::uint32_t>& items) {
    if (at(dict).kind != Kind::dict) fail("items for what is no dict");
    if (items.size() % 2 != 0) fail("a key without a value");
    auto& keys = keys_[dict];
    for (std::size_t i = 0; i < items.size(); i += 2)
      if (const auto key = key_text(at(items[i])); key && !keys.insert(*key).second)
        fail(fmt::format("the key {} twice in one dict", in_quotes(key->substr(1))));
    at(dict).items.insert(at(dict).items.end(), items.begin(), items.end());
  }

  void append(std::uint32_t list, Kind kind, const std::vector<std::uint32_t>& items) {
    if (at(list).kind != kind) fail(kind == Kind::list ? "items for what is no list" : "items for what is no set");
    at(list).items.insert(at(list).items.end(), items.begin(), items.end());
  }

  std::int64_t count_of(std::uint32_t place, std::string_view what) {
    const Value& value = at(place);
    if (value.kind != Kind::integer || value.integer < 0) fail(fmt::format("{} that is no count", what));
    return value.integer;
  }

  std::vector<std::int64_t> counts_of(std::uint32_t place, std::string_view what) {
    const Value& value = at(place);
    if ((value.kind != Kind::tuple && value.kind != Kind::list) || value.items.size() > most_dimensions)
      fail(fmt::format("{} that is no short tuple", what));
    std::vector<std::int64_t> counts;
    for (const std::uint32_t item : value.items) counts.push_back(count_of(item, what));
    return counts;
  }

  void push_storage(std::uint32_t id) {
    const std::vector<std::uint32_t> parts = at(id).items;
    if (at(id).kind != Kind::tuple || parts.size() != 5 || at(parts[0]).kind != Kind::text ||
        at(parts[0]).text != "storage" || at(parts[1]).kind != Kind::global || at(parts[2]).kind != Kind::text)
      fail("a persistent id that is no storage");
    Storage storage{.key = at(parts[2]).text, .elements = count_of(parts[4], "a storage's length")};
    const Dtype* dtype = dtype_of_storage(at(parts[1]).text);
    if (dtype == nullptr && at(parts[1]).text != untyped_storage) fail("a persistent id that is no storage");
    if (dtype != nullptr) storage.dtype = dtype->name, storage.item_bytes = dtype->bytes;
    if (storage.key.empty() || storage.key.size() > most_key_bytes) fail("a storage without a short name");
    if (storage.elements > std::numeric_limits<std::int64_t>::max() / storage.item_bytes)
      fail("a storage beyond all memory");
    // torch takes what the first mention says, so a second one that says otherwise would be read in two ways.
    const auto [held, fresh] = pickle_.storages.emplace(storage.key, storage);
    if (!fresh && held->second != storage) fail(fmt::format("storage {} described in two ways", storage.key));
    push({.kind = Kind::storage, .text = storage.key});
  }

  void push_view(const std::vector<std::uint32_t>& arguments, bool with_dtype) {
    const std::size_t least = with_dtype ? 7 : 6;
    if (arguments.size() < least || arguments.size() > least + 1 || at(arguments[0]).kind != Kind::storage)
      fail("a tensor whose arguments are not those of torch.save");
    const Storage& storage = pickle_.storages.at(at(arguments[0]).text);
    std::string_view dtype = storage.dtype;
    if (with_dtype) {
      const Value& named = at(arguments[6]);
      if (named.kind != Kind::global || !named.text.starts_with("torch.")) fail("a tensor without a dtype");
      dtype = std::string_view(named.text).substr(6);
    }
    const Dtype* known_dtype = dtype_named(dtype);
    if (known_dtype == nullptr) fail("a tensor without a dtype");
    View view{.storage = storage.key,
              .dtype = known_dtype->name,
              .item_bytes = known_dtype->bytes,
              .offset = count_of(arguments[1], "a tensor's offset"),
              .shape = counts_of(arguments[2], "a shape"),
              .strides = counts_of(arguments[3], "strides")};
    if (view.shape.size() != view.strides.size()) fail("a shape and strides of different length");
    Wide last = view.offset, elements = 1;
    constexpr Wide most = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < view.shape.size() && !view.empty(); ++i) {
      last += static_cast<Wide>(view.shape[i] - 1) * view.strides[i];
      elements *= view.shape[i];
      if (last > most || elements > most) fail("a tensor beyond all memory");
    }
    if (!view.empty() && (last + 1) * view.item_bytes > static_cast<Wide>(storage.bytes()))
      fail(fmt::format("a tensor that reaches to element {} of storage {}, which has {}",
                       static_cast<std::int64_t>(last), storage.key,
                       storage.bytes() / static_cast<std::uint64_t>(view.item_bytes)));
    pickle_.views.push_back(std::move(view));
    push({.kind = Kind::tensor, .integer = static_cast<std::int64_t>(pickle_.views.size() - 1)});
  }

  void reduce(const std::string& function, const std::vector<std::uint32_t>& arguments) {
    const auto is = [&](std::size_t i, Kind kind) { return i < arguments.size() && at(arguments[i]).kind == kind; };
    if (function == rebuild_v2) return push_view(arguments, false);
    if (function == rebuild_v3) return push_view(arguments, true);
    if (function == rebuild_parameter || function == rebuild_parameter_with_state) {
      if (!is(0, Kind::tensor)) fail("a parameter without a tensor");
      return push(arguments[0]);
    }
    if (function == rebuild_from_type) {
      // (function, type, arguments, attributes): a plain tensor or parameter that carries attributes of Python's.
      if (arguments.size() != 4 || !is(0, Kind::global) || !is(1, Kind::global) || !is(2, Kind::tuple) ||
          at(arguments[0]).text == rebuild_from_type ||
          (at(arguments[1]).text != "torch.Tensor" && at(arguments[1]).text != "torch.nn.parameter.Parameter"))
        fail("a tensor of another type");
      const std::string inner = at(arguments[0]).text;
      const std::vector<std::uint32_t> its = at(arguments[2]).items;
      return reduce(inner, its);
    }
    if (function == "collections.OrderedDict" || function == "collections.Counter") {
      Value dict{.kind = Kind::dict};
      if (arguments.size() == 1 && is(0, Kind::dict))
        dict.items = at(arguments[0]).items;
      else if (!arguments.empty())
        fail("a dict made of something else");
      push(std::move(dict));
      if (!arguments.empty()) keys_[stack_.back()] = keys_[arguments[0]];
      return;
    }
    if (function == "torch.Size" && arguments.size() == 1 && (is(0, Kind::tuple) || is(0, Kind::list)))
      return push({.kind = Kind::tuple, .items = at(arguments[0]).items});
    if (function == "builtins.set" && arguments.size() <= 1 && (arguments.empty() || is(0, Kind::list)))
      return push(
          {.kind = Kind::set, .items = arguments.empty() ? std::vector<std::uint32_t>{} : at(arguments[0]).items});
    if (makes_plain_value(function)) return push({.kind = Kind::applied, .text = function, .items = arguments});
    fail(fmt::format("a call of {}", function));
  }

  bool step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    switch (opcode) {
      case 0x80:  // PROTO
        if (const std::uint64_t protocol = little(1); opcode_at_ != 0 || protocol < 2 || protocol > 5)
          fail(fmt::format("pickle protocol {}", protocol));
        break;
      case 0x95: {  // FRAME: how many bytes may be read at once
        const std::uint64_t length = little(8);
        if (length > bytes_.size() - at_) fail("a frame beyond the end");
        break;
      }
      case '.':
        pickle_.root = pop();
        if (!stack_.empty() || !marks_.empty()) fail("values left over");
        // A second pickle behind the first would be read by some and not by others.
        if (at_ != bytes_.size()) fail("bytes behind the end");
        return false;
      case '(':
        if (marks_.size() >= most_depth) fail("values too deep in each other");
        marks_.push_back(stack_.size());
        break;
      case 'N': push(Value{}); break;
      case 0x88: push({.kind = Kind::boolean, .integer = 1}); break;
      case 0x89: push({.kind = Kind::boolean}); break;
      case 'K': push({.kind = Kind::integer, .integer = static_cast<std::int64_t>(little(1))}); break;
      case 'M': push({.kind = Kind::integer, .integer = static_cast<std::int64_t>(little(2))}); break;
      case 'J': push({.kind = Kind::integer, .integer = static_cast<std::int32_t>(little(4))}); break;
      case 0x8a: push_long(take(little(1))); break;
      case 'G': {  // BINFLOAT, big-endian
        std::uint64_t bits = 0;
        for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
        push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
        break;
      }
      case 'X': push_text(little(4)); break;
      case 0x8c: push_text(little(1)); break;
      case 0x8d: push_text(little(8)); break;
      case 'U': push_text(little(1)); break;  // torch decodes it too
      case 'C': push({.kind = Kind::bytes, .text = std::string(take(little(1)))}); break;
      case 'B': push({.kind = Kind::bytes, .text = std::string(take(little(4)))}); break;
      case ']': push({.kind = Kind::list}); break;
      case ')': push({.kind = Kind::tuple}); break;
      case '}': push({.kind = Kind::dict}); break;
      case 0x8f: push({.kind = Kind::set}); break;
      case 't': push({.kind = Kind::tuple, .items = pop_mark()}); break;
      case 0x85: push_tuple(1); break;
      case 0x86: push_tuple(2); break;
      case 0x87: push_tuple(3); break;
      case 'a': {
        const std::uint32_t item = pop();
        append(top(), Kind::list, {item});
        break;
      }
      case 'e': {
        const std::vector<std::uint32_t> items = pop_mark();
        append(top(), Kind::list, items);
        break;
      }
      case 0x90: {  // ADDITEMS
        const std::vector<std::uint32_t> items = pop_mark();
        append(top(), Kind::set, items);
        break;
      }
      case 's': {
        const std::uint32_t value = pop(), key = pop();
        set_items(top(), {key, value});
        break;
      }
      case 'u': {
        const std::vector<std::uint32_t> items = pop_mark();
        set_items(top(), items);
        break;
      }
      case 'q': remember(little(1)); break;
      case 'r': remember(little(4)); break;
      case 0x94: remember(memo_.size()); break;
      case 'h': recall(little(1)); break;
      case 'j': recall(little(4)); break;
      case 'c': {
        std::string module = line();
        const std::string name = line();
        push_global(std::move(module), name);
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::uint32_t name = pop(), module = pop();
        if (at(name).kind != Kind::text || at(module).kind != Kind::text) fail("a global without a name");
        const std::string its_name = at(name).text;
        push_global(at(module).text, its_name);
        break;
      }
      case 'Q': push_storage(pop()); break;
      case 'R': {
        const std::uint32_t arguments = pop(), function = pop();
        if (at(arguments).kind != Kind::tuple) fail("a call without arguments");
        if (at(function).kind != Kind::global) fail("a call of what is no function");
        const std::string name = at(function).text;
        const std::vector<std::uint32_t> its = at(arguments).items;
        reduce(name, its);
        break;
      }
      case 'b': {  // BUILD: a state dict carries its modules' versions as an attribute
        const std::uint32_t state = pop();
        if (at(state).kind != Kind::dict || at(top()).kind != Kind::dict) fail("attributes for what is no dict");
        break;
      }
      default: fail(fmt::format("opcode 0x{:02x}, which it does not write,", opcode));
    }
    return true;
  }

  void remember(std::uint64_t index) {
    memo_[index] = top();
    limit(memo_.size());
  }

  void recall(std::uint64_t index) {
    const auto held = memo_.find(index);
    if (held == memo_.end()) fail(fmt::format("memo {} before it is set", index));
    push(held->second);
  }

  std::string_view bytes_;
  std::size_t at_ = 0, opcode_at_ = 0, items_ = 0;
  Pickle pickle_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, std::uint32_t> memo_;
  std::unordered_map<std::uint32_t, std::set<std::string>> keys_;  // of each dict
};

}  // namespace

bool View::empty() const {
  return std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent == 0; });
}

std::int64_t View::last() const {
  std::int64_t place = offset;
  for (std::size_t i = 0; i < shape.size(); ++i) place += (shape[i] - 1) * strides[i];
  return place;
}

const Value* Pickle::find(const Value& dict, std::string_view key) const {
  for (std::size_t i = 0; dict.kind == Kind::dict && i + 1 < dict.items.size(); i += 2)
    if (const Value& held = values[dict.items[i]]; held.kind == Kind::text && held.text == key)
      return &values[dict.items[i + 1]];
  return nullptr;
}

Pickle pickle_from(std::string_view bytes) { return Machine(bytes).run(); }

int item_bytes_of(std::string_view dtype) {
  const Dtype* known_dtype = dtype_named(dtype);
  return known_dtype == nullptr ? 0 : known_dtype->bytes;
}

}  // namespace fractus::gate
