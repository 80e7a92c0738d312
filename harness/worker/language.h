// What a library that brings another language into the worker hands over. The worker opens it only when a candidate of
// that language is asked for, and knows nothing else of it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "contracts/form.h"
#include "harness/outside.h"

namespace fractus::worker {

struct Language {
  // Brings in what a file will need and everybody may have, and says whether its calls may generate code, which takes
  // a while. It reads the file and does not run it.
  std::function<bool(const std::string& path)> prepare;
  // Runs the file and gives the function as a form. What the file does is the candidate's doing.
  std::function<Form(const std::string& path, const std::string& name, const Contract& contract)> load;
  // What the process has read as code, beside what is installed, since this was last asked.
  std::function<outside::Loaded()> loaded;
  // The top-level names of a file, read and not run.
  std::function<std::vector<outside::Outlined>(const std::string& path)> outline;
  // Around each fork of a process that has the language loaded.
  std::function<void()> before_fork, after_fork_in_parent, after_fork_in_child;
  // Makes the device `field` known to the language, once it is open.
  std::function<void()> open_device;
  // Where in a source the language's code is now, without torch's own: "attention.py:42 in blocks"; empty: nowhere.
  std::function<std::string()> place;
  // Of the exception that is being handled, where it is one of the language's own.
  std::function<std::optional<std::string>()> exception_text;
};

// What the library exports as `fractus_language`: starts the language and fills `language`. Throws std::runtime_error
// that says what is missing.
using OpenLanguage = void(Language& language);

}  // namespace fractus::worker
