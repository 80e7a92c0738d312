// What torch's users test a rewritten function with (gradcheck, assert_close, a relative-RMS rule), as
// bench/peers/run.py runs it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fractus::bench {

enum class Answer { accepted, refused, none };  // none: the tool came to no answer of its own

// A tool's answer on a function.
struct Answered {
  std::string function;
  Answer answer = Answer::none;
  std::string reason;
  double seconds = 0;
};

struct Tool {
  std::string name, settings, inputs;
  double seconds = 0;  // over all functions, start-up included
  std::vector<Answered> functions;
};

struct Peers {
  std::filesystem::path venv, libraries, script;  // libraries: where the stand-ins for CUDA's are
};

// Each function meets each tool in a process of its own. Throws std::runtime_error where the script fails, which has
// said why on standard error.
std::vector<Tool> run(const Peers& peers, const std::string& kernel, const std::filesystem::path& file,
                      const std::vector<std::string>& functions);

}  // namespace fractus::bench
