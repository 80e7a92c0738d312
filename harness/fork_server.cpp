#include "harness/fork_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reports/words.h"

namespace fractus::process {

using namespace std::chrono_literals;
using protocol::Delivery;
using protocol::Descriptor;
using protocol::Json;
using protocol::Received;

namespace {

constexpr int worker_socket = 3;  // where the worker looks for its end
constexpr const char* stopped = "it stopped to answer";

// Keeps the end of what has been written so far. Bounded work, so that a flood cannot hold the caller.
void drain(Descriptor& output, std::string& tail) {
  char buffer[1 << 16];
  for (int turn = 0; turn < 16 && output; ++turn) {
    const ssize_t got = read(output.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      output = Descriptor();
      return;
    }
    tail.append(buffer, static_cast<std::size_t>(got));
    if (tail.size() > tail_bytes) tail.erase(0, tail.size() - tail_bytes);
  }
}

// Waits for the socket, and drains the output meanwhile, since nobody answers who is stuck in writing.
bool answers_before(Clock::time_point deadline, const Descriptor& socket, Descriptor& output, std::string& tail) {
  while (true) {
    const int readable = output ? protocol::wait_readable(std::array{socket.get(), output.get()}, deadline)
                                : protocol::wait_readable(std::array{socket.get()}, deadline);
    if (readable <= 0) return readable == 0;
    drain(output, tail);
    if (Clock::now() > deadline) return false;
  }
}

// The reading end, which does not block, and the writing end.
std::pair<Descriptor, Descriptor> output_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  std::pair<Descriptor, Descriptor> pipe(ends[0], ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

std::string ending_text(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const char* text = sigdescr_np(WTERMSIG(wait_status));
    return fmt::format("signal {} ({})", WTERMSIG(wait_status), text != nullptr ? text : "unknown");
  }
  return fmt::format("exit status {}", WEXITSTATUS(wait_status));
}

enum class Look { ended, asleep, awake };

// One look at /proc/PID/stat: has the process ended, is it about to, or does SIGKILL wait for it?
Look look_at(const Descriptor& stat) {
  char line[1024];
  const ssize_t got = pread(stat.get(), line, sizeof line - 1, 0);
  if (got <= 0) return Look::ended;
  line[got] = '\0';
  // The second field, the name in brackets, may hold anything. Behind it the state, numbers, and in the 9th and 31st
  // field the process's flags and its pending signals.
  const char* name_end = std::strrchr(line, ')');
  if (name_end == nullptr) return Look::ended;
  std::istringstream fields(name_end + 1);
  char state = 'X';
  fields >> state;
  std::array<std::int64_t, 32> field{};
  for (std::size_t number = 4; number < field.size(); ++number) fields >> field[number];
  constexpr std::int64_t exiting = 0x4, killed_by_signal = 0x400;  // PF_EXITING and PF_SIGNALED
  const bool ended = state == 'Z' || state == 'X' || (field[9] & (exiting | killed_by_signal)) != 0 ||
                     (field[31] >> (SIGKILL - 1) & 1) != 0;
  return ended ? Look::ended : state == 'S' ? Look::asleep : Look::awake;
}

// Has the process ended, or been killed, even if it has not come to die yet? From the moment that kill() returns, what
// ends a process is pending and the process is awake; when it takes that up it is flagged instead, and in between it
// may be kept from the processor for a while with neither to be seen. A starter that was not killed is asleep, or soon
// will be.
bool is_ending(const Descriptor& stat) {
  for (int turn = 0; turn < 10'000; ++turn) {
    const Look look = look_at(stat);
    if (look != Look::awake) return look == Look::ended;
    std::this_thread::sleep_for(50us);
  }
  return false;
}

// A verdict must not depend on who asks for it. These change which instructions compute (ATEN_CPU_CAPABILITY, MKL_CBWR,
// DNNL_MAX_CPU_ISA, GLIBC_TUNABLES), how many threads share the work and in which order they add, what fresh memory
// holds (MALLOC_PERTURB_), or put other code in the place of what was linked (LD_PRELOAD). What merely says where
// things lie stays: PATH, HOME, LD_LIBRARY_PATH, CUDA_VISIBLE_DEVICES.
constexpr std::string_view scrubbed[] = {
    "OMP_",  "GOMP_",   "KMP_",      "MKL_",  "ATEN_",   "TORCH_",          "PYTORCH_",    "C10_",
    "DNNL_", "ONEDNN_", "OPENBLAS_", "BLIS_", "MALLOC_", "GLIBC_TUNABLES=", "LD_PRELOAD=", "LD_AUDIT=",
};

bool is_scrubbed(std::string_view entry) {
  return std::any_of(std::begin(scrubbed), std::end(scrubbed),
                     [&](std::string_view start) { return entry.starts_with(start); });
}

pid_t start(const std::filesystem::path& worker, int socket, int errors) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, socket, worker_socket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A process group of its own: an interrupt at the terminal reaches the parent, which then ends the worker in order.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  // OpenMP's threads spin at every barrier unless told otherwise; with fewer free cores than threads, and the judge
  // works beside the worker, that was measured to make a kernel twenty times slower.
  std::string passive = "OMP_WAIT_POLICY=passive";
  // A static initialiser of a form that runs a parallel loop would leave threads in the server that no fork has, and
  // every form's first parallel loop would wait for them. Each call sets its own number of threads.
  std::string single = "OMP_NUM_THREADS=1";
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_scrubbed(*entry)) environment.push_back(*entry);
  environment.push_back(passive.data());
  environment.push_back(single.data());
  environment.push_back(nullptr);
  std::string path = worker.string();
  char* const arguments[] = {path.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::runtime_error(fmt::format("cannot start the worker {}: {}", path, std::strerror(error)));
  return pid;
}

}  // namespace

Server::Server(const std::filesystem::path& worker) : path(worker.string()) {
  if (access(path.c_str(), X_OK) != 0)
    throw std::runtime_error(
        fmt::format("no worker at {}: build the target fractus-worker, or set FRACTUS_WORKER", path));
  auto [ours, theirs] = protocol::channel();
  auto [reading, writing] = output_pipe();
  pid = start(worker, theirs.get(), writing.get());
  socket = std::move(ours);
  errors = std::move(reading);
}

Server::~Server() {
  socket = Descriptor();  // its loop ends, and with it its children
  wait_for_end(5s);
}

void Server::wait_for_end(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  int status = 0;
  while (pid > 0) {
    drain(errors, last_errors);
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended != 0) {
      ending = ended > 0 ? ending_text(status) : "unknown end";
      pid = -1;
    } else if (Clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      ending = stopped;
      pid = -1;
    } else {
      std::this_thread::sleep_for(500us);
    }
  }
  drain(errors, last_errors);
}

// Absent where the server ends or is late.
std::optional<Json> Server::answer_to(const Json& question, std::span<const int> descriptors,
                                      std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  if (pid <= 0 || !protocol::send(socket.get(), question, descriptors)) return std::nullopt;
  if (!answers_before(deadline, socket, errors, last_errors)) return std::nullopt;
  Received received = protocol::receive(socket.get(), deadline);
  if (received.delivery != Delivery::message) return std::nullopt;
  return std::move(received.message.body);
}

Json Server::first_answer(std::chrono::milliseconds patience) {
  std::string trouble;
  try {
    if (const auto answer = answer_to({{"op", "forms"}}, {}, patience)) {
      if (!answer->contains("error")) return *answer;
      throw std::invalid_argument(answer->at("error").get<std::string>());
    }
    wait_for_end(200ms);
    trouble = ending == stopped ? fmt::format("no answer within {} s", std::chrono::duration<double>(patience).count())
                                : ending;
  } catch (const std::invalid_argument& refusal) {
    throw std::runtime_error(visible(refusal.what()));
  } catch (const std::exception& error) {
    trouble = fmt::format("it answered {}", error.what());
    wait_for_end(0ms);
  }
  const std::string last_words(tail_of(visible_lines(last_errors), 2000));
  // The forms' files are linked into the worker, and their static objects are made before its first line runs.
  throw std::runtime_error(
      fmt::format("the worker {} did not come up: {}. The likely cause, unless its own words name another, is the "
                  "static initialiser of a form, so a file under "
                  "candidates/, reference/ or fixtures/ that was added or changed last.{}",
                  path, trouble,
                  last_words.empty() ? " It wrote nothing to its standard error."
                                     : fmt::format(" The last that it wrote to its standard error:\n{}", last_words)));
}

Json Server::ask(const Json& question, std::span<const int> descriptors) { return ask(question, 60s, descriptors); }

Json Server::ask(const Json& question, std::chrono::milliseconds patience, std::span<const int> descriptors) {
  const std::scoped_lock lock(mutex);
  if (const auto answer = answer_to(question, descriptors, patience)) {
    if (answer->contains("error")) throw std::runtime_error(answer->at("error").get<std::string>());
    return *answer;
  }
  wait_for_end(5s);
  throw std::runtime_error(fmt::format("the worker {} has ended: {}{}", path, ending,
                                       last_errors.empty() ? "" : fmt::format("\n{}", visible_lines(last_errors))));
}

Child::Child(std::shared_ptr<Spawner> from, std::int64_t extra_bytes, Serves serves) : server(std::move(from)) {
  auto [ours, theirs] = protocol::channel();
  auto [reading, writing] = output_pipe();
  output = std::move(reading);
  socket = std::move(ours);
  const Json answer =
      server->ask({{"op", "spawn"}, {"extra_bytes", extra_bytes}, {"loads", serves == Serves::one_candidate}},
                  std::array{theirs.get(), writing.get()});
  answer.at("pid").get_to(pid);
  answer.at("starter").get_to(starter);
  starter_stat = Descriptor(open(fmt::format("/proc/{}/stat", starter).c_str(), O_RDONLY | O_CLOEXEC));
  alive = true;
}

Child::~Child() {
  if (!alive) return;
  try {
    reap(0ms);
  } catch (const std::exception&) {
    // The server is gone, and its children with it.
  }
}

void Child::drain() { process::drain(output, tail); }

std::string Child::reap(std::chrono::milliseconds grace) {
  alive = false;
  Json answer;
  try {
    answer = server->ask({{"op", "reap"}, {"starter", starter}, {"grace_ms", grace.count()}});
  } catch (const CandidateGone& gone) {
    drain();
    return gone.what();  // and this process, its descendant, with it
  }
  drain();
  const auto& ended = answer.at("ended").get_ref<const std::string&>();
  const std::string ending = ending_text(answer.at("status").get<int>());
  if (ended == "form") return ending;
  if (ended == "starter") return fmt::format("it ended the process that had started it: {}", ending);
  return "it closed its connection without an answer";
}

Reply Child::exchange(const Json& request, std::span<const int> descriptors, std::chrono::milliseconds limit) {
  if (!alive) throw std::runtime_error(fmt::format("the worker's child {} is dead; spawn another", pid));
  const auto deadline = Clock::now() + limit;
  Received received;
  if (protocol::send(socket.get(), request, descriptors)) {
    const bool answers = answers_before(deadline, socket, output, tail);
    received.delivery = Delivery::late;
    try {
      if (answers) received = protocol::receive(socket.get(), deadline);
    } catch (const std::exception& error) {
      reap(0ms);
      return {Status::crashed, fmt::format("it answered {}", error.what()), {}};
    }
  }
  switch (received.delivery) {
    case Delivery::message:
      drain();
      // An answer is no answer where the form has ended its starter, with which it is about to end itself.
      if (is_ending(starter_stat)) return {Status::crashed, reap(1s), {}};
      return {Status::ok, {}, std::move(received.message)};
    case Delivery::late:
      reap(0ms);
      return {Status::timed_out, fmt::format("no answer within {} ms", limit.count()), {}};
    case Delivery::ended: break;
  }
  return {Status::crashed, reap(1s), {}};
}

}  // namespace fractus::process
