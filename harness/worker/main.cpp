// fractus-worker, the fork server: it has torch loaded and answers its parent by forking itself. It runs no torch
// operation and stays single-threaded, so that a fork is a clean copy. When its parent goes, everything it started
// ends.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>

#include "contracts/form.h"
#include "harness/worker/serve.h"

namespace fractus::worker {
namespace {

using protocol::Clock;
using protocol::Json;
using protocol::Message;

constexpr int socket_fd = 3;
std::set<pid_t> children;

const char* name(Role role) {
  return role == Role::reference ? "reference" : role == Role::candidate ? "candidate" : "wrong";
}

Json describe_forms() {
  if (!refused_registrations().empty())
    throw std::invalid_argument(fmt::format("a form cannot be registered: {}", refused_registrations().front()));
  Json all = Json::array();
  for (const Form& form : forms())
    all.push_back({{"kernel", form.kernel},
                   {"name", form.name},
                   {"role", name(form.role)},
                   {"summary", form.summary},
                   {"settings", form.settings},
                   {"bit_equal_reruns", form.declares.bit_equal_reruns},
                   {"bit_equal_threads", form.declares.bit_equal_threads},
                   {"bit_equal_neighbours", form.declares.bit_equal_neighbours},
                   {"declares_memory", static_cast<bool>(form.declares.extra_elements)}});
  return {{"forms", all}};
}

Json extra_elements(const Json& question) {
  const Form* form = find_form(question.at("kernel").get<std::string>(), question.at("form").get<std::string>());
  if (form == nullptr)
    throw std::invalid_argument(
        fmt::format("no form of {} is named {}", question.at("kernel").dump(), question.at("form").dump()));
  if (!form->declares.extra_elements) return {{"count", nullptr}};
  Settings settings = form->settings;
  for (const auto& [key, value] : question.at("settings").get<Settings>()) settings[key] = value;
  return {{"count", form->declares.extra_elements(question.at("dims").get<Dims>(), settings)}};
}

std::int64_t address_space_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void set_limit(int resource, std::int64_t value) {
  const rlimit limit{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

[[noreturn]] void become_child(const Message& request, pid_t server) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(0);  // it was gone before the line above
  dup2(request.descriptors.at(1).get(), STDOUT_FILENO);
  dup2(request.descriptors.at(1).get(), STDERR_FILENO);
  dup2(request.descriptors.at(0).get(), socket_fd);
  close_range(socket_fd + 1, ~0U, 0);
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_AS, address_space_bytes() + request.body.at("extra_bytes").get<std::int64_t>());
  serve(socket_fd);
}

Json spawn(const Message& request) {
  const pid_t server = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (pid == 0) become_child(request, server);
  setpgid(pid, pid);
  children.insert(pid);
  return {{"pid", pid}};
}

// Processes that a child started and that have left its group come to us when it ends: we are their subreaper.
void end_orphans() {
  for (bool found = true; found;) {
    found = false;
    std::ifstream list(fmt::format("/proc/self/task/{}/children", getpid()));
    for (pid_t pid = 0; list >> pid;) {
      if (children.contains(pid)) continue;
      found = true;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
}

Json reap(pid_t pid, std::chrono::milliseconds grace) {
  if (children.erase(pid) == 0) throw std::invalid_argument(fmt::format("{} is no child", pid));
  const auto deadline = Clock::now() + grace;
  siginfo_t info{};
  // WNOWAIT: as long as it is a zombie, the number of its group cannot belong to anybody else.
  while (waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0 && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  const bool killed = info.si_pid == 0;
  kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  end_orphans();
  return {{"status", status}, {"killed", killed}};
}

Json answer_to(const Message& request) {
  const auto& op = request.body.at("op").get_ref<const std::string&>();
  if (op == "forms") return describe_forms();
  if (op == "extra_elements") return extra_elements(request.body);
  if (op == "spawn") return spawn(request);
  if (op == "reap")
    return reap(request.body.at("pid").get<pid_t>(), std::chrono::milliseconds(request.body.at("grace_ms").get<int>()));
  throw std::invalid_argument("no request '" + op + "'");
}

void run_server() {
  close_range(socket_fd + 1, ~0U, 0);  // whatever the parent left open
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  while (true) {
    const protocol::Received received = protocol::receive(socket_fd);
    if (received.delivery != protocol::Delivery::message) break;
    Json answer;
    try {
      answer = answer_to(received.message);
    } catch (...) {
      answer = {{"error", exception_text()}};
    }
    if (!protocol::send(socket_fd, answer)) break;
  }
  for (const std::set<pid_t> left = children; const pid_t pid : left) reap(pid, std::chrono::milliseconds(0));
}

}  // namespace
}  // namespace fractus::worker

int main() {
  struct stat status {};
  if (fstat(fractus::worker::socket_fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    std::fputs("fractus-worker is started by fractus-verify, not by hand\n", stderr);
    return 64;
  }
  fractus::worker::run_server();
  _exit(0);
}
