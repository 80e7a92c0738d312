#include "harness/worker/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
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
#include <set>
#include <stdexcept>
#include <thread>

#include "contracts/form.h"
#include "harness/worker/outside.h"
#include "harness/worker/run.h"
#include "harness/worker/serve.h"

namespace fractus::worker {
namespace {

using protocol::Json;
using protocol::Message;

// A form can end the process that started it: kill(getppid()) is one line. Were that this server, every other form
// would end with it and nobody could tell whose doing it was; so each form has a parent of its own, its starter, which
// serves nobody else, tells us here how the form ended, and takes the form along when it is killed itself.
std::map<pid_t, protocol::Descriptor> starters;  // by process, and where what it tells is read

// Processes that a candidate's file has left running while it was loaded, for its calls to use.
std::set<pid_t> companions;

const char* name(Role role) {
  return role == Role::reference ? "reference" : role == Role::candidate ? "candidate" : "wrong";
}

Json describe(const Form& form) {
  return {{"kernel", form.kernel},
          {"name", form.name},
          {"role", name(form.role)},
          {"summary", form.summary},
          {"shown_by", form.shown_by},
          {"settings", form.settings},
          {"bit_equal_reruns", form.declares.bit_equal_reruns},
          {"bit_equal_threads", form.declares.bit_equal_threads},
          {"bit_equal_neighbours", form.declares.bit_equal_neighbours},
          {"declares_memory", static_cast<bool>(form.declares.extra_elements)},
          {"recomputes", form.declares.recomputes}};
}

Json describe_forms() {
  if (!refused_registrations().empty())
    throw std::invalid_argument(fmt::format("a form cannot be registered: {}", refused_registrations().front()));
  Json all = Json::array();
  for (const Form& form : forms()) all.push_back(describe(form));
  return {{"forms", all}};
}

std::int64_t address_space_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// `hard`: for good. Where it is not, a process that is forked from this one can have a limit of its own.
void set_limit(int resource, std::int64_t value, bool hard) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = static_cast<rlim_t>(value);
  if (hard) limit.rlim_max = limit.rlim_cur;
  setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

// With what a language that is loaded does around a fork.
pid_t fork_clean() {
  const Language* const spoken = language();
  if (spoken == nullptr) return fork();
  spoken->before_fork();
  const pid_t child = fork();
  const int error = errno;
  child == 0 ? spoken->after_fork_in_child() : spoken->after_fork_in_parent();
  errno = error;
  return child;
}

[[noreturn]] void become_child(const Message& request, pid_t starter) {
  starters.clear();  // of the process that this one is a copy of
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != starter) _exit(0);  // it was gone before the line above
  dup2(request.descriptors.at(1).get(), STDOUT_FILENO);
  dup2(request.descriptors.at(1).get(), STDERR_FILENO);
  dup2(request.descriptors.at(0).get(), socket_fd);
  close_range(socket_fd + 1, ~0U, 0);
  const bool loads = request.body.at("loads").get<bool>();
  set_limit(RLIMIT_CORE, 0, /*hard=*/true);
  set_limit(RLIMIT_AS, address_space_bytes() + request.body.at("extra_bytes").get<std::int64_t>(), /*hard=*/!loads);
  if (!loads) serve(socket_fd);
  run_server(/*for_candidate=*/true);
  _exit(0);
}

void tell(int number) {
  if (write(0, &number, sizeof number) != sizeof number) _exit(1);
}

[[noreturn]] void become_starter(const Message& request, int report, pid_t server) {
  setpgid(0, 0);  // kill(-getpgid(getppid())) does not reach the server either
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != server) _exit(0);
  const pid_t self = getpid();
  const pid_t form = fork_clean();
  const int error = errno;
  if (form == 0) become_child(request, self);
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
  // With the first form, and not at the start, since many commands run none; what is forked from a fork has it too.
  [[maybe_unused]] static const bool warm = (warm_up(), true);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  protocol::Descriptor report(ends[0]);
  protocol::Descriptor telling(ends[1]);
  const pid_t server = getpid();
  const pid_t starter = fork_clean();
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

std::set<pid_t> children() {
  std::set<pid_t> all;
  std::ifstream list(fmt::format("/proc/self/task/{}/children", getpid()));
  for (pid_t pid = 0; list >> pid;) all.insert(pid);
  return all;
}

// Processes whose parent has ended come to us, their subreaper: what a form left behind, and a form whose starter
// ended.
void end_orphans() {
  for (bool found = true; found;) {
    found = false;
    for (const pid_t pid : children()) {
      if (starters.contains(pid) || companions.contains(pid)) continue;
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

// Everything that is thrown here is the candidate's doing.
Json load(const Json& request) {
  const Contract* contract = find_contract(request.at("kernel").get<std::string>());
  if (contract == nullptr) throw std::invalid_argument("no kernel " + request.at("kernel").dump());
  try {
    Form form = load_outside(request.at("candidate").get<std::string>(), *contract);
    if (const std::size_t threads = thread_count(); threads > 1)
      throw std::runtime_error(
          fmt::format("it has left {} threads running, and each process that serves its calls is a fork, in which they "
                      "are gone: start them in the function",
                      threads - 1));
    companions = children();
    Json answer{{"form", describe(add_form(std::move(form)))}};
    add_loaded(answer);
    return answer;
  } catch (const outside::NotThere& absent) {
    return {{"not_there", absent.what()}, {"known", absent.known}};
  } catch (...) {
    return {{"raised", exception_text()}};
  }
}

Json answer_to(const Message& request, bool for_candidate) {
  const auto& op = request.body.at("op").get_ref<const std::string&>();
  if (op == "forms") return describe_forms();
  if (op == "spawn") return spawn(request);
  if (op == "reap")
    return reap(request.body.at("starter").get<pid_t>(),
                std::chrono::milliseconds(request.body.at("grace_ms").get<int>()));
  if (op == "open_python") return open_python(), Json::object();
  if (op == "prepare") return {{"compiles", language()->prepare(request.body.at("path").get<std::string>())}};
  if (op == "load" && for_candidate) return load(request.body);
  throw std::invalid_argument("no request '" + op + "'");
}

}  // namespace

std::size_t thread_count() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

void run_server(bool for_candidate) {
  close_range(socket_fd + 1, ~0U, 0);  // whatever the parent left open
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  while (true) {
    const protocol::Received received = protocol::receive(socket_fd);
    if (received.delivery != protocol::Delivery::message) break;
    Json answer;
    try {
      answer = answer_to(received.message, for_candidate);
    } catch (...) {
      answer = {{"error", exception_text()}};
    }
    if (!protocol::send(socket_fd, answer)) break;
  }
  while (!starters.empty()) reap(starters.begin()->first, std::chrono::milliseconds(0));
}

}  // namespace fractus::worker
