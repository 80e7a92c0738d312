// A checkpoint's form, which no swap may change: names, shapes and dtypes of its tensors, which of them share memory,
// and its config. Read from a .pt file's directory and pickle, without the tensors' data and without executing
// anything.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gate/pickle.h"
#include "gate/refusal.h"

namespace fractus::gate {

struct Tensor {
  std::string dtype;  // torch's name for it: float32, bfloat16 ...
  std::vector<std::int64_t> shape;
  bool operator==(const Tensor&) const = default;
};

struct Form {
  std::map<std::string, Tensor> tensors;  // of model_state, an `_orig_mod.` prefix stripped
  // Names whose tensors share elements, in groups of two and more. Absent where a schema does not say it; so is config.
  std::optional<std::vector<std::vector<std::string>>> tied;
  std::optional<nlohmann::json> config;
};

struct Checkpoint {
  Archive archive;
  Pickle pickle;
  std::map<std::string, std::size_t> views;  // a tensor's name: its place in pickle.views
  Form form;
};

inline constexpr const char* schema_format = "fractus-verify checkpoint schema 1";

// A .pt file {'model_state', 'config'}. Throws Unreadable, and so do the next two.
Checkpoint read_checkpoint(const std::filesystem::path& file);

// Of a schema where the name ends in .json, of a .pt file otherwise.
Form form_of(const std::filesystem::path& file);

Form form_from(const nlohmann::json& schema);
nlohmann::json schema_of(const Form& form);

struct CheckpointQuestion {
  std::filesystem::path before, after;         // each a .pt file or a schema
  bool numbers = false;                        // read the data of `after` too: no NaN, no infinity
  std::vector<std::string> config_may_change;  // keys, such as "lr" or "optimizer.lr"
};

// Is the form of `after` that of `before`?
Answer check_checkpoint(const CheckpointQuestion& question);

// Refused where the file cannot be read as a checkpoint; `check` is the name of the check that asks.
Refusal refusal_of(const Unreadable& fault, const std::filesystem::path& file, const std::string& check);

}  // namespace fractus::gate
