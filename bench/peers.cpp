#include "bench/peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace fractus::bench {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// What the program writes to its standard output. Its environment is `environment` and nothing else.
std::string output_of(std::vector<std::string> command, std::vector<std::string> environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, command[0].c_str(), &actions, nullptr, pointers(command).data(),
                                pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char buffer[1 << 16];
  for (ssize_t got = 1; error == 0 && got != 0;) {
    got = read(ends[0], buffer, sizeof buffer);
    if (got > 0) output.append(buffer, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  close(ends[0]);
  if (error != 0) throw std::runtime_error(fmt::format("cannot start {}: {}", command[0], std::strerror(error)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error(fmt::format("the peers were not measured: {} {}", command[2],
                                         WIFEXITED(status) ? fmt::format("ended in {}", WEXITSTATUS(status))
                                                           : fmt::format("was ended by signal {}", WTERMSIG(status))));
  return output;
}

Answer answer_from(const std::string& result) {
  return result == "accepted" ? Answer::accepted : result == "refused" ? Answer::refused : Answer::none;
}

}  // namespace

std::vector<Tool> run(const Peers& peers, const std::string& kernel, const std::filesystem::path& file,
                      const std::vector<std::string>& functions) {
  std::vector<std::string> command{peers.venv / "bin" / "python", "-I", peers.script, kernel, file};
  command.insert(command.end(), functions.begin(), functions.end());
  // Nothing of the caller's environment changes arithmetic or the number of threads, and these do not spin, as for our
  // own worker. A GPU would be found without its libraries.
  std::vector<std::string> environment{"LD_LIBRARY_PATH=" + peers.libraries.string(), "OMP_WAIT_POLICY=passive",
                                       "CUDA_VISIBLE_DEVICES="};
  for (const char* name : {"PATH", "HOME", "TMPDIR"})
    if (const char* value = std::getenv(name)) environment.push_back(fmt::format("{}={}", name, value));

  const nlohmann::json all = nlohmann::json::parse(output_of(command, environment));
  std::vector<Tool> tools;
  for (const auto& entry : all.at("tools")) {
    Tool tool{entry.at("tool"), entry.at("settings"), entry.at("inputs"), all.at("start_seconds"), {}};
    for (const auto& one : entry.at("functions")) {
      tool.functions.push_back({one.at("name"), answer_from(one.at("result")), one.at("reason"), one.at("seconds")});
      tool.seconds += tool.functions.back().seconds;
    }
    tools.push_back(std::move(tool));
  }
  return tools;
}

}  // namespace fractus::bench
