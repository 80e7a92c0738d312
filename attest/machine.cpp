#include "attest/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "attest/files.h"

namespace fractus::attest {
namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* space = " \t\r";
  const auto first = text.find_first_not_of(space);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(space) - first + 1);
}

// Of lines "name : value", the value of the first that has one of the names.
std::string field(const std::filesystem::path& file, std::initializer_list<const char*> names) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string name = trimmed(line.substr(0, colon));
    if (std::find(names.begin(), names.end(), name) != names.end()) return trimmed(line.substr(colon + 1));
  }
  return "";
}

// x86: SSE4.2 and later; ARM: the vector and matrix extensions. The kernel lists them among hundreds of others, of
// which x86's sme and smep are about memory.
bool is_numerical(const std::string& feature, bool x86) {
  constexpr std::array starts{"avx", "amx", "fma", "f16c", "sse4_2", "asimd", "sve", "sme", "bf16", "i8mm"};
  return !(x86 && feature.starts_with("sme")) &&
         std::any_of(starts.begin(), starts.end(), [&](const char* start) { return feature.starts_with(start); });
}

std::string features(const std::filesystem::path& cpuinfo) {
  const bool x86 = !field(cpuinfo, {"flags"}).empty();
  std::istringstream words(field(cpuinfo, {"flags", "Features"}));
  std::set<std::string> kept;
  for (std::string word; words >> word;)
    if (is_numerical(word, x86)) kept.insert(word);
  return fmt::format("{}", fmt::join(kept, " "));
}

std::string or_unknown(std::string text) { return text.empty() ? "unknown" : text; }

void add_gpu(Machine& machine, const std::filesystem::path& nvidia) {
  std::ifstream version(nvidia / "version");
  std::string line;
  if (!std::getline(version, line)) return;
  std::smatch found;
  machine["driver"] =
      std::regex_search(line, found, std::regex(R"(\b(\d+\.\d+(\.\d+)?)\b)")) ? found.str(1) : "unknown";
  std::set<std::string> models;
  std::error_code error;
  for (auto gpu = std::filesystem::directory_iterator(nvidia / "gpus", error); !error && gpu != decltype(gpu)();
       gpu.increment(error))
    if (const std::string model = field(gpu->path() / "information", {"Model"}); !model.empty()) models.insert(model);
  machine["gpu"] = or_unknown(fmt::format("{}", fmt::join(models, ", ")));
}

}  // namespace

Machine this_machine(const std::filesystem::path& proc) {
  utsname system{};
  ::uname(&system);
  Machine machine{{"cpu", or_unknown(field(proc / "cpuinfo", {"model name", "CPU part"}))},
                  {"cpu_features", features(proc / "cpuinfo")},
                  {"cores", fmt::format("{}", std::thread::hardware_concurrency())},
                  {"system", fmt::format("{} {}", system.sysname, system.machine)}};
  add_gpu(machine, proc / "driver" / "nvidia");
  return machine;
}

Machine torch_in(const std::filesystem::path& folder) {
  const std::string text = read_whole(folder / "version.py");
  const auto value = [&](const char* name) -> std::string {
    // __version__ = '2.11.0+cu130', cuda: Optional[str] = '13.0' and cuda: Optional[str] = None
    std::smatch found;
    const std::regex line(fmt::format(R"re((?:^|\n){}(?::[^=\n]*)? *= *(?:'([^'\n]*)'|"([^"\n]*)"|None))re", name));
    if (!std::regex_search(text, found, line)) return "";
    return found[1].matched ? found.str(1) : found[2].matched ? found.str(2) : "none";
  };
  const std::string version = value("__version__"), cuda = value("cuda");
  if (version.empty() || version == "none" || cuda.empty())
    throw std::runtime_error(
        fmt::format("'{}' says no version of torch: wanted the lines '__version__ = ...' and "
                    "'cuda = ...' of the version.py in torch's own folder",
                    (folder / "version.py").string()));
  return {{"torch", version}, {"cuda", cuda}};
}

}  // namespace fractus::attest
