// Candidates from outside of the build: how the command line names them. Parent and worker share this.
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fractus::outside {

// One kind of file that a form can come from, told by its ending.
struct Kind {
  std::string_view ending;
  std::string_view spelling;  // what --candidate wants
  bool takes_name;            // "path:name" rather than "path"
  bool in_python;             // its process has Python and torch's Python side loaded
  bool forward_only;          // holds no backward
};

inline constexpr Kind kinds[] = {
    {".py", "path/file.py:function", true, true, false},
    // These name what torch links with Python: its extension builder the symbols, its exporter libtorch.so.
    {".so", "path/lib.so:namespace::op", true, true, false},
    {".pt2", "path/program.pt2", false, true, true},
    {".pt", "path/program.pt", false, false, false},
};

struct Spec {
  const Kind* kind = nullptr;
  std::string path;
  std::string name;  // of the function or operator; empty where the kind takes none
};

// Absent where the text names a form of this build. Throws std::invalid_argument, with the spellings, where it looks
// like a file but is none of them.
std::optional<Spec> spec_from(const std::string& candidate);

// A name that the top level of a file binds, as it is read and not run.
struct Outlined {
  std::string name;
  bool is_function = false;
  std::vector<std::string> parameters;
};

// Files whose bytes were run as a candidate's, as they were when they were read.
struct Loaded {
  std::map<std::string, std::string> digests;  // by absolute path without links: SHA-256, hex
  std::vector<std::string> unbound;            // what was run and has no such bytes; one sentence each
};

// The file is there, and has no function or operator of the name; `known` are those that it has.
struct NotThere : std::runtime_error {
  NotThere(const std::string& text, std::vector<std::string> there)
      : std::runtime_error(text), known(std::move(there)) {}
  std::vector<std::string> known;
};

}  // namespace fractus::outside
