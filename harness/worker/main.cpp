// fractus-worker, the fork server: it has torch loaded and answers its parent by forking itself. It runs no torch
// operation and stays single-threaded, so that a fork is a clean copy. When its parent goes, everything it started
// ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
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

// A form can end the process that started it: kill(getppid()) is one line. Were that this server, every other form
// would end with it and nobody could tell whose doing it was; so each form has a parent of its own, its starter, which
// serves nobody else, tells us here how the form ended, and takes the form along when it is killed itself.
std::map<pid_t, protocol::Descriptor> starters;  // by process, and where what it tells is read

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
                   {"shown_by", form.shown_by},
                   {"settings", form.settings},
                   {"bit_equal_reruns", form.declares.bit_equal_reruns},
                   {"bit_equal_threads", form.declares.bit_equal_threads},
                   {"bit_equal_neighbours", form.declares.bit_equal_neighbours},
                   {"declares_memory", static_cast<bool>(form.declares.extra_elements)}});
  return {{"forms", all}};
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

[[noreturn]] void become_form(const Message& request, pid_t starter) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != starter) _exit(0);  // it was gone before the line above
  dup2(request.descriptors.at(1).get(), STDOUT_FILENO);
  dup2(request.descriptors.at(1).get(), STDERR_FILENO);
  dup2(request.descriptors.at(0).get(), socket_fd);
  close_range(socket_fd + 1, ~0U, 0);
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_AS, address_space_bytes() + request.body.at("extra_bytes").get<std::int64_t>());
  serve(socket_fd);
}

void tell(int number) {
  if (write(0, &number, sizeof number) != sizeof number) _exit(1);
}

[[noreturn]] void become_starter(const Message& request, int report, pid_t server) {
  setpgid(0, 0);  // kill(-getpgid(getppid())) does not reach the server either
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(0);
  const pid_t self = getpid();
  const pid_t form = fork();
  const int error = errno;
  if (form == 0) become_form(request, self);
  dup2(report, 0);
  close_range(1, ~0U, 0);  // the form's end of its connection above all: it closes when the form ends
  tell(form > 0 ? form : -error);
  siginfo_t info{};
  // WNOWAIT: as long as it is a zombie, the number of its group cannot belong to anybody else.
  while (waitid(P_PID, static_cast<id_t>(form), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  kill(-form, SIGKILL);
  int status = 0;
  waitpid(form, &status, 0);
  tell(status);
  _exit(0);
}

// What the starter tells next; absent where it ended before.
std::optional<int> told(const protocol::Descriptor& report) {
  int number = 0;
  ssize_t got = 0;
  while ((got = read(report.get(), &number, sizeof number)) < 0 && errno == EINTR) {
  }
  return got == sizeof number ? std::optional(number) : std::nullopt;
}

Json spawn(const Message& request) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  protocol::Descriptor report(ends[0]);
  protocol::Descriptor telling(ends[1]);
  const pid_t server = getpid();
  const pid_t starter = fork();
  if (starter < 0) throw std::runtime_error(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (starter == 0) become_starter(request, telling.get(), server);
  telling = {};
  const int form = told(report).value_or(0);
  if (form <= 0) {
    kill(starter, SIGKILL);
    waitpid(starter, nullptr, 0);
    throw std::runtime_error(fmt::format("cannot fork: {}", form < 0 ? std::strerror(-form) : "the starter ended"));
  }
  starters.emplace(starter, std::move(report));
  return {{"pid", form}, {"starter", starter}};
}

// Processes whose parent has ended come to us, their subreaper: what a form left behind, and a form whose starter
// ended.
void end_orphans() {
  for (bool found = true; found;) {
    found = false;
    std::ifstream list(fmt::format("/proc/self/task/{}/children", getpid()));
    for (pid_t pid = 0; list >> pid;) {
      if (starters.contains(pid)) continue;
      found = true;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
}

// Ends a starter, its form and what that left behind. `ended` says whose end came first, theirs or this one.
Json reap(pid_t starter, std::chrono::milliseconds grace) {
  const auto found = starters.find(starter);
  if (found == starters.end()) throw std::invalid_argument(fmt::format("{} is no starter of a form", starter));
  const auto deadline = Clock::now() + grace;
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(starter), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0 &&
         Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  const bool by_itself = info.si_pid != 0;
  kill(starter, SIGKILL);
  int status = 0;
  waitpid(starter, &status, 0);
  const protocol::Descriptor report = std::move(found->second);
  starters.erase(found);
  end_orphans();
  if (const auto of_form = told(report)) return {{"ended", "form"}, {"status", *of_form}};
  return {{"ended", by_itself ? "starter" : "neither"}, {"status", status}};
}

Json answer_to(const Message& request) {
  const auto& op = request.body.at("op").get_ref<const std::string&>();
  if (op == "forms") return describe_forms();
  if (op == "spawn") return spawn(request);
  if (op == "reap")
    return reap(request.body.at("starter").get<pid_t>(),
                std::chrono::milliseconds(request.body.at("grace_ms").get<int>()));
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
  while (!starters.empty()) reap(starters.begin()->first, std::chrono::milliseconds(0));
}

}  // namespace
}  // namespace fractus::worker

int main() {
  struct stat status {};
  if (fstat(fractus::worker::socket_fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    std::fputs("fractus-worker is started by fractus-verify, not by hand\n", stderr);
    return 64;
  }
  // Threads do not survive a fork, and locks that they hold do: every child would be at risk.
  if (const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); threads > 1) {
    fmt::print(stderr, "a form's static initialiser has started threads: {} run before any call\n", threads - 1);
    return 70;
  }
  fractus::worker::run_server();
  _exit(0);
}
