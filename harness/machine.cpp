#include "harness/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <thread>

namespace fractus {
namespace {

std::string cpu_field(const std::string& wanted) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind(wanted, 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

std::map<std::string, std::string> this_machine() {
  utsname system{};
  ::uname(&system);
  std::string vectors;
  const std::string flags = " " + cpu_field("flags") + " ";
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"})
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) vectors += fmt::format(" {}", flag);
  return {{"cpu", cpu_field("model name") + vectors},
          {"cores", fmt::format("{}", std::thread::hardware_concurrency())},
          {"system", fmt::format("{} {}", system.sysname, system.machine)},
          {"compiler", fmt::format("g++ {}", __VERSION__)},
          {"torch", "2.11.0"}};
}

}  // namespace fractus
