#include "gate/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "attest/files.h"
#include "attest/strict_json.h"
#include "gate/numbers.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

constexpr std::size_t most_tensors = 100'000, most_config_values = 100'000, most_shown = 8;
constexpr int most_config_depth = 64;
constexpr std::string_view prefix = "_orig_mod.";
constexpr const char* name = "checkpoint";

// A config as JSON. Lists and tuples are one, as for a reader of JSON; what JSON has no word for stands under a name
// that begins with $.
class Plain {
 public:
  explicit Plain(const Pickle& pickle) : pickle_(pickle) {}

  json of(const Value& value, int depth = 0) {
    // Values may refer to each other in a circle, or double at each of many levels.
    if (depth > most_config_depth || ++count_ > most_config_values)
      throw Unreadable(
          fmt::format("its config is deeper than {} or has more than {} values", most_config_depth, most_config_values),
          "keep plain settings in config");
    switch (value.kind) {
      case Kind::none: return nullptr;
      case Kind::boolean: return value.integer != 0;
      case Kind::integer: return value.integer;
      case Kind::long_integer: return {{"$integer", "0x" + value.text}};
      case Kind::real:
        if (std::isfinite(value.real)) return value.real;
        return {{"$float", std::isnan(value.real) ? "nan" : value.real > 0 ? "inf" : "-inf"}};
      case Kind::text: return value.text;
      case Kind::bytes: {
        std::string hex;
        for (const char byte : value.text) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
        return {{"$bytes", hex}};
      }
      case Kind::list:
      case Kind::tuple: return list_of(value, depth);
      case Kind::set: {
        json items = list_of(value, depth);
        std::sort(items.begin(), items.end());
        return {{"$set", std::move(items)}};
      }
      case Kind::dict: return dict_of(value, depth);
      case Kind::global: return {{"$name", value.text}};
      case Kind::applied: return {{"$" + value.text, list_of(value, depth)}};
      case Kind::storage:
      case Kind::tensor: break;
    }
    throw Unreadable("its config holds a tensor, whose values would have to be compared too",
                     "keep tensors in model_state and plain settings in config");
  }

 private:
  json list_of(const Value& value, int depth) {
    json items = json::array();
    for (const std::uint32_t item : value.items) items.push_back(of(pickle_[item], depth + 1));
    return items;
  }

  json dict_of(const Value& value, int depth) {
    json object = json::object(), pairs = json::array();
    for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const Value& key = pickle_[value.items[i]];
      json held = of(pickle_[value.items[i + 1]], depth + 1);
      if (key.kind == Kind::text)
        object[key.text] = std::move(held);
      else
        pairs.push_back(json::array({of(key, depth + 1), std::move(held)}));
    }
    std::sort(pairs.begin(), pairs.end());
    if (!pairs.empty()) object["$other keys"] = std::move(pairs);
    return object;
  }

  const Pickle& pickle_;
  std::size_t count_ = 0;
};

// Groups of names whose views have a byte of one storage in common.
std::vector<std::vector<std::string>> ties(const Checkpoint& checkpoint) {
  struct Range {
    std::string storage;
    std::int64_t first, last;  // bytes
    std::string name;
  };
  std::vector<Range> ranges;
  for (const auto& [tensor, place] : checkpoint.views)
    if (const View& view = checkpoint.pickle.views[place]; !view.empty())
      ranges.push_back({view.storage, view.offset * view.item_bytes, (view.last() + 1) * view.item_bytes - 1, tensor});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.storage, a.first, a.name) < std::tie(b.storage, b.first, b.name);
  });
  std::vector<std::vector<std::string>> groups;
  for (std::size_t i = 0; i < ranges.size();) {
    std::vector<std::string> group = {ranges[i].name};
    std::int64_t reach = ranges[i].last;
    std::size_t next = i + 1;
    for (; next < ranges.size() && ranges[next].storage == ranges[i].storage && ranges[next].first <= reach; ++next) {
      group.push_back(ranges[next].name);
      reach = std::max(reach, ranges[next].last);
    }
    i = next;
    std::sort(group.begin(), group.end());
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

void require_data(const Checkpoint& checkpoint) {
  for (const auto& [key, storage] : checkpoint.pickle.storages) {
    const std::uint64_t bytes = checkpoint.archive.size("data/" + key);
    if (bytes != storage.bytes())
      throw Unreadable(
          fmt::format("storage {} is to have {} bytes, and its entry has {}", in_quotes(key), storage.bytes(), bytes),
          save_again);
  }
}

std::string stripped(const std::string& tensor) {
  return tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : tensor;
}

void read_tensors(Checkpoint& checkpoint, const Value& state) {
  if (state.kind != Kind::dict) throw Unreadable("its model_state is no dict", "save module.state_dict() there");
  if (state.items.empty()) throw Unreadable("its model_state is empty", "save module.state_dict() there");
  if (state.items.size() / 2 > most_tensors)
    throw Unreadable(fmt::format("its model_state has more than {} tensors", most_tensors), save_again);
  for (std::size_t i = 0; i + 1 < state.items.size(); i += 2) {
    const Value &key = checkpoint.pickle[state.items[i]], &value = checkpoint.pickle[state.items[i + 1]];
    if (key.kind != Kind::text) throw Unreadable("its model_state has a name that is no text", save_again);
    if (value.kind != Kind::tensor)
      throw Unreadable(fmt::format("model_state[{}] is no tensor", in_quotes(key.text)),
                       "keep tensors alone in model_state");
    const auto place = static_cast<std::size_t>(value.integer);
    if (!checkpoint.views.emplace(stripped(key.text), place).second)
      throw Unreadable(fmt::format("its model_state has {} both with and without the prefix {}",
                                   in_quotes(stripped(key.text)), prefix),
                       "save the state of one module, compiled or not");
    const View& view = checkpoint.pickle.views[place];
    checkpoint.form.tensors[stripped(key.text)] = {view.dtype, view.shape};
  }
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

// "3 tensors WHAT: a, b, c", cut where they are many.
std::string listed(const std::vector<std::string>& all, std::string_view what) {
  const std::size_t some = std::min(all.size(), most_shown);
  std::string text = fmt::format("{} {} {}: {}", all.size(), all.size() == 1 ? "tensor" : "tensors", what,
                                 fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(some), ", "));
  if (some < all.size()) text += fmt::format(", and {} more", all.size() - some);
  return text;
}

bool mentions_inner_prefix(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& one) { return one.find("._orig_mod.") != one.npos; });
}

void compare_tensors(const Form& before, const Form& after, Answer& answer) {
  std::vector<std::string> missing, extra, shapes, dtypes;
  for (const auto& [tensor, was] : before.tensors) {
    const auto found = after.tensors.find(tensor);
    if (found == after.tensors.end()) {
      missing.push_back(in_quotes(tensor));
      continue;
    }
    const Tensor& is = found->second;
    if (is.shape != was.shape)
      shapes.push_back(fmt::format("{} {}, was {}", in_quotes(tensor), shape_text(is.shape), shape_text(was.shape)));
    if (is.dtype != was.dtype) dtypes.push_back(fmt::format("{} {}, was {}", in_quotes(tensor), is.dtype, was.dtype));
  }
  for (const auto& [tensor, is] : after.tensors)
    if (!before.tensors.contains(tensor)) extra.push_back(in_quotes(tensor));

  const char* names_remedy =
      mentions_inner_prefix(missing) || mentions_inner_prefix(extra)
          ? "a module inside is compiled, so its names have _orig_mod. within them: save the state of "
            "the modules before they are compiled, or compile the whole"
          : "keep every parameter and buffer under the name that it had; a value that can be computed "
            "again is a buffer with persistent=False";
  if (!missing.empty())
    answer.refusals.push_back({name, listed(missing, "missing in the new checkpoint"), names_remedy});
  if (!extra.empty())
    answer.refusals.push_back({name, listed(extra, "that the old checkpoint does not have"), names_remedy});
  if (!shapes.empty())
    answer.refusals.push_back(
        {name, listed(shapes, "of another shape"), "keep the stored layout; reshape or transpose when it is used"});
  if (!dtypes.empty())
    answer.refusals.push_back(
        {name, listed(dtypes, "of another dtype"), "keep the stored dtype; cast when it is used"});
  if (missing.empty() && extra.empty() && shapes.empty() && dtypes.empty())
    answer.checked.push_back(
        {name, fmt::format("{} tensors: names, shapes and dtypes as they were", before.tensors.size())});
}

void compare_ties(const Form& before, const Form& after, Answer& answer) {
  if (!before.tied || !after.tied) {
    answer.checked.push_back({name, "a schema says nothing of shared memory, so that was not compared"});
    return;
  }
  std::vector<std::string> changed;
  const auto without = [&](const auto& groups, const auto& others, std::string_view what) {
    for (const auto& group : groups)
      if (std::find(others.begin(), others.end(), group) == others.end())
        changed.push_back(fmt::format("{} {}", in_quotes(fmt::format("{}", fmt::join(group, " = "))), what));
  };
  without(*before.tied, *after.tied, "share memory in the old checkpoint, not so in the new one");
  without(*after.tied, *before.tied, "share memory in the new checkpoint, not so in the old one");
  if (changed.empty()) {
    answer.checked.push_back({name, fmt::format("{} groups of tied tensors, as they were", before.tied->size())});
    return;
  }
  const std::size_t all = changed.size();
  changed.resize(std::min(all, most_shown));
  answer.refusals.push_back(
      {name, fmt::format("tied tensors changed, {} times: {}", all, fmt::join(changed, "; ")),
       "save module.state_dict() as it is: a copy of one of two tied tensors is a weight of its own, and "
       "two tensors that become one lose a weight"});
}

void differences(const json& was, const json& is, const std::string& path,
                 std::vector<std::pair<std::string, std::string>>& found) {
  if (was == is && was.dump() == is.dump()) return;  // to JSON 8 and 8.0 are equal
  if (was.is_object() && is.is_object()) {
    std::set<std::string> keys;
    for (const auto& [key, held] : was.items()) keys.insert(key);
    for (const auto& [key, held] : is.items()) keys.insert(key);
    for (const std::string& key : keys) {
      const std::string inner = path.empty() ? key : path + "." + key;
      if (!was.contains(key))
        found.emplace_back(inner, fmt::format("{} is new", in_quotes(inner)));
      else if (!is.contains(key))
        found.emplace_back(inner, fmt::format("{} is gone", in_quotes(inner)));
      else
        differences(was.at(key), is.at(key), inner, found);
    }
    return;
  }
  found.emplace_back(path, fmt::format("{} {}, was {}", in_quotes(path), in_quotes(is.dump()), in_quotes(was.dump())));
}

void compare_configs(const Form& before, const Form& after, const std::vector<std::string>& may_change,
                     Answer& answer) {
  if (!before.config || !after.config) {
    answer.checked.push_back({name, "a schema says nothing of the config, so that was not compared"});
    return;
  }
  std::vector<std::pair<std::string, std::string>> found;
  differences(*before.config, *after.config, "", found);
  std::vector<std::string> refused, allowed;
  for (const auto& [path, text] : found) {
    const bool may = std::any_of(may_change.begin(), may_change.end(), [&](const std::string& key) {
      return path == key || (path.starts_with(key) && path[key.size()] == '.');
    });
    (may ? allowed : refused).push_back(text);
  }
  if (refused.empty() && allowed.empty()) answer.checked.push_back({name, "config as it was"});
  if (!allowed.empty())
    answer.checked.push_back({name, fmt::format("config differs where it may: {}", fmt::join(allowed, "; "))});
  if (refused.empty()) return;
  // No shape shows the number of heads or of experts chosen: such a change computes something else with the same
  // tensors.
  const std::size_t all = refused.size();
  refused.resize(std::min(all, most_shown));
  answer.refusals.push_back(
      {name, fmt::format("config differs in {} settings: {}", all, fmt::join(refused, "; ")),
       "keep the config; name a setting that does not change what is computed with --config-may-change"});
}

void check_numbers(const Checkpoint& checkpoint, Answer& answer) {
  const std::vector<NotFinite> found = not_finite(checkpoint);
  if (found.empty()) {
    answer.checked.push_back({name, "no NaN and no infinity in the new checkpoint"});
    return;
  }
  std::vector<std::string> texts;
  for (const NotFinite& one : found)
    texts.push_back(fmt::format("{} {} NaN and {} infinite, the first at {}", in_quotes(one.name), one.nans,
                                one.infinities, shape_text(one.first)));
  answer.refusals.push_back({name, listed(texts, "with values that are not finite"),
                             "go back to the last checkpoint that is finite, and find the step that made them"});
}

// torch loads no archive without a version of 1 to 10 (caffe2/serialize/versions.h, kMaxSupportedFileFormatVersion).
void require_version(const Archive& archive) {
  const char* place = archive.holds(".data/version") ? ".data/version" : "version";
  const std::string text = archive.read(place, 16);
  const std::string_view digits = std::string_view(text).substr(0, text.find_last_not_of("\r\n ") + 1);
  int version = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
  if (error != std::errc() || end != digits.data() + digits.size() || version < 1 || version > 10)
    throw Unreadable(fmt::format("its archive is of version {}, and torch loads 1 to 10", in_quotes(digits)),
                     save_again);
}

}  // namespace

Checkpoint read_checkpoint(const std::filesystem::path& file) {
  Archive archive(file);
  if (archive.holds("constants.pkl"))
    throw Unreadable("it is a TorchScript program, which holds code", "save {'model_state', 'config'} with torch.save");
  if (archive.holds("byteorder") && archive.read("byteorder", 16) != "little")
    throw Unreadable("its numbers are not little-endian", "save it on a little-endian machine");
  Pickle pickle = pickle_from(archive.read("data.pkl", most_pickle_bytes));
  require_version(archive);
  Checkpoint checkpoint{.archive = std::move(archive), .pickle = std::move(pickle)};
  const Value& root = checkpoint.pickle[checkpoint.pickle.root];
  const Value *state = checkpoint.pickle.find(root, "model_state"), *config = checkpoint.pickle.find(root, "config");
  if (root.kind != Kind::dict || state == nullptr || config == nullptr) {
    const char* what = root.kind != Kind::dict ? "it is no dict"
                       : state != nullptr      ? "it has no 'config'"
                       : config != nullptr     ? "it has no 'model_state'"
                                               : "it has neither 'model_state' nor 'config'";
    throw Unreadable(what, "save {'model_state': module.state_dict(), 'config': its settings}");
  }
  read_tensors(checkpoint, *state);
  require_data(checkpoint);
  checkpoint.form.tied = ties(checkpoint);
  checkpoint.form.config = Plain(checkpoint.pickle).of(*config);
  return checkpoint;
}

Form form_of(const std::filesystem::path& file) {
  if (file.extension() != ".json") return read_checkpoint(file).form;
  try {
    return form_from(attest::strict_json(read_whole(file), "the schema"));
  } catch (const Unreadable&) {
    throw;
  } catch (const std::exception& e) {
    throw Unreadable(e.what(), "write one with: ./fractus-verify checkpoint FILE.pt --json SCHEMA.json");
  }
}

Form form_from(const json& schema) {
  const auto fail = [](const std::string& what) -> Unreadable {
    return {"its schema " + what, "write one with: ./fractus-verify checkpoint FILE.pt --json SCHEMA.json"};
  };
  if (!schema.is_object() || schema.value("format", json()) != schema_format)
    throw fail(fmt::format("does not say \"format\": \"{}\"", schema_format));
  for (const auto& [key, held] : schema.items())
    if (key != "format" && key != "tensors" && key != "tied" && key != "config")
      throw fail("has an unknown member " + in_quotes(key));
  if (!schema.contains("tensors") || !schema["tensors"].is_array() || schema["tensors"].empty() ||
      schema["tensors"].size() > most_tensors)
    throw fail(fmt::format("has no list of 1 to {} tensors", most_tensors));
  Form form;
  for (const json& one : schema["tensors"]) {
    if (!one.is_object() || one.size() != 3 || !one.contains("name") || !one["name"].is_string() ||
        !one.contains("shape") || !one["shape"].is_array() || !one.contains("dtype") || !one["dtype"].is_string())
      throw fail("has a tensor that is not {\"name\", \"shape\", \"dtype\"}");
    Tensor tensor{.dtype = one["dtype"].get<std::string>()};
    if (item_bytes_of(tensor.dtype) == 0) throw fail("has the unknown dtype " + in_quotes(tensor.dtype));
    for (const json& extent : one["shape"]) {
      if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX)
        throw fail("has a shape that is not of counts");
      tensor.shape.push_back(extent.get<std::int64_t>());
    }
    const auto its_name = stripped(one["name"].get<std::string>());
    if (!form.tensors.emplace(its_name, std::move(tensor)).second)
      throw fail("has two tensors named " + in_quotes(its_name));
  }
  if (schema.contains("tied")) {
    form.tied.emplace();
    std::set<std::string> seen;
    if (!schema["tied"].is_array()) throw fail("has tied tensors that are no list of groups");
    for (const json& group : schema["tied"]) {
      if (!group.is_array() || group.size() < 2) throw fail("has tied tensors that are no list of groups");
      std::vector<std::string> names;
      for (const json& one : group) {
        if (!one.is_string()) throw fail("has a tied tensor that is no name");
        names.push_back(stripped(one.get<std::string>()));
        if (!form.tensors.contains(names.back()) || !seen.insert(names.back()).second)
          throw fail("ties " + in_quotes(names.back()) + ", which it does not list, or ties twice");
      }
      std::sort(names.begin(), names.end());
      form.tied->push_back(std::move(names));
    }
    std::sort(form.tied->begin(), form.tied->end());
  }
  if (schema.contains("config")) form.config = schema["config"];
  return form;
}

json schema_of(const Form& form) {
  json tensors = json::array();
  for (const auto& [tensor, is] : form.tensors)
    tensors.push_back({{"name", tensor}, {"shape", is.shape}, {"dtype", is.dtype}});
  json schema = {{"format", schema_format}, {"tensors", std::move(tensors)}};
  if (form.tied) schema["tied"] = *form.tied;
  if (form.config) schema["config"] = *form.config;
  return schema;
}

Refusal refusal_of(const Unreadable& fault, const std::filesystem::path& file, const std::string& check) {
  return {check, fmt::format("{}: {}", in_quotes(file.string()), fault.what()), fault.remedy};
}

Answer check_checkpoint(const CheckpointQuestion& question) {
  Answer answer;
  const auto read = [&](const std::filesystem::path& file, auto reader) -> decltype(std::optional(reader(file))) {
    try {
      return reader(file);
    } catch (const Unreadable& fault) {
      answer.refusals.push_back(refusal_of(fault, file, name));
      return std::nullopt;
    }
  };
  const std::optional<Form> before = read(question.before, form_of);
  std::optional<Form> after = read(question.after, form_of);
  if (after && question.numbers) {
    if (question.after.extension() == ".json")
      answer.refusals.push_back(
          {name, "the numbers of a schema cannot be looked at: it has none", "give the .pt file"});
    else if (const std::optional<Checkpoint> whole = read(question.after, read_checkpoint))
      try {
        check_numbers(*whole, answer);
      } catch (const Unreadable& fault) {
        answer.refusals.push_back(refusal_of(fault, question.after, name));
      }
  }
  if (!before || !after) return answer;
  compare_tensors(*before, *after, answer);
  compare_ties(*before, *after, answer);
  compare_configs(*before, *after, question.config_may_change, answer);
  return answer;
}

}  // namespace fractus::gate
