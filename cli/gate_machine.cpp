#include "cli/gate_machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include "attest/machine.h"
#include "cli/commands.h"
#include "cli/usage.h"

namespace fractus::cli {
namespace {

namespace fs = std::filesystem;

// Where the first program of this name on PATH lies, as PATH has it: a virtual environment's python is a link to
// another one, and the folder of the link decides what it imports.
std::optional<fs::path> on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  std::error_code error;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (!folder.empty() && fs::is_regular_file(fs::path(folder) / program, error)) return fs::path(folder) / program;
  return std::nullopt;
}

// torch's folders below lib/python3.N of a prefix.
void add_torch_below(const fs::path& prefix, std::set<fs::path>& found) {
  std::error_code error;
  for (const char* library : {"lib", "lib64", "local/lib"})
    for (fs::directory_iterator one(prefix / library, error), end; !error && one != end; one.increment(error))
      if (one->path().filename().string().starts_with("python3"))
        for (const char* packages : {"site-packages", "dist-packages"}) {
          std::error_code absent;
          const fs::path folder = fs::canonical(one->path() / packages / "torch", absent);
          if (!absent && fs::is_regular_file(folder / "version.py", absent)) found.insert(folder);
        }
}

fs::path installed_torch() {
  std::set<fs::path> found;
  for (const char* program : {"python", "python3"})
    if (const auto python = on_path(program))
      add_torch_below(fs::absolute(*python).lexically_normal().parent_path().parent_path(), found);
  if (found.empty()) return root() / ".venv" / "torch";
  if (found.size() == 1) return *found.begin();
  std::vector<std::string> names;
  for (const fs::path& folder : found) names.push_back(folder.string());
  throw UsageError(
      fmt::format("--machine auto: there is more than one torch ({}); name the one that the code is loaded beside with "
                  "--torch FOLDER",
                  fmt::join(names, ", ")));
}

}  // namespace

Loader loading_machine(const std::string& machine, const std::string& torch) {
  if (machine != "auto") {
    if (!torch.empty()) throw UsageError("--torch says which torch --machine auto reads, and the machine is a file");
    try {
      return {gate::machine_from(machine), ""};
    } catch (const std::runtime_error& fault) {
      throw UsageError(fmt::format("--machine: {}", fault.what()));
    }
  }
  Loader loader{attest::this_machine(), ""};
  const fs::path folder = torch.empty() ? installed_torch() : fs::path(torch);
  std::error_code error;
  if (torch.empty() && !fs::exists(folder / "version.py", error)) return loader;  // then it is not known, and refused
  try {
    loader.facts.merge(attest::torch_in(folder));
  } catch (const std::runtime_error& fault) {
    throw UsageError(fmt::format("--torch: {}", fault.what()));
  }
  loader.torch = folder.string();
  return loader;
}

}  // namespace fractus::cli
