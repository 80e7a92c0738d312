#include "harness/fork_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace fractus::process {

using namespace std::chrono_literals;
using protocol::Clock;
using protocol::Delivery;
using protocol::Descriptor;
using protocol::Json;
using protocol::Received;

namespace {

constexpr std::size_t tail_bytes = 16 << 10;
constexpr int worker_socket = 3;  // where the worker looks for its end

std::string ending_text(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const char* text = sigdescr_np(WTERMSIG(wait_status));
    return fmt::format("signal {} ({})", WTERMSIG(wait_status), text != nullptr ? text : "unknown");
  }
  return fmt::format("exit status {}", WEXITSTATUS(wait_status));
}

// Has the process ended, or been killed, even if it has not come to die yet? SIGKILL, and whatever else ends a process
// at once, is pending from the moment that the kill() of another process returns.
bool is_ending(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return true;
  // The name, in brackets, may hold anything; from the state (the third field) on there are numbers. The 31st: pending.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  char state = 'X';
  fields >> state;
  std::string skipped;
  for (int number = 4; number < 31; ++number) fields >> skipped;
  std::uint64_t pending = 0;
  fields >> pending;
  return state == 'Z' || state == 'X' || (pending >> (SIGKILL - 1) & 1) != 0;
}

pid_t start(const std::filesystem::path& worker, int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
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
  // works beside the worker, that was measured to make a kernel twenty times slower. A setting of the user's stays.
  std::string passive = "OMP_WAIT_POLICY=passive";
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) environment.push_back(passive.data());
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
  pid = start(worker, theirs.get());
  socket = std::move(ours);
}

Server::~Server() {
  socket = Descriptor();  // its loop ends, and with it its children
  wait_for_end();
}

void Server::wait_for_end() {
  const auto deadline = Clock::now() + 5s;
  int status = 0;
  while (pid > 0) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended != 0) {
      ending = ended > 0 ? ending_text(status) : "unknown end";
      pid = -1;
    } else if (Clock::now() > deadline) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      ending = "it stopped to answer";
      pid = -1;
    } else {
      std::this_thread::sleep_for(500us);
    }
  }
}

Json Server::ask(const Json& question, std::span<const int> descriptors) {
  const std::scoped_lock lock(mutex);
  if (pid > 0 && protocol::send(socket.get(), question, descriptors)) {
    Received received = protocol::receive(socket.get(), Clock::now() + 60s);
    if (received.delivery == Delivery::message) {
      Json& answer = received.message.body;
      if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
      return std::move(answer);
    }
  }
  wait_for_end();
  throw std::runtime_error(fmt::format("the worker {} has ended: {}", path, ending));
}
Child::Child(std::shared_ptr<Server> from, std::int64_t extra_bytes) : server(std::move(from)) {
  auto [ours, theirs] = protocol::channel();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  output = Descriptor(ends[0]);
  const Descriptor writing(ends[1]);
  fcntl(output.get(), F_SETFL, O_NONBLOCK);
  socket = std::move(ours);
  const Json answer =
      server->ask({{"op", "spawn"}, {"extra_bytes", extra_bytes}}, std::array{theirs.get(), writing.get()});
  answer.at("pid").get_to(pid);
  answer.at("starter").get_to(starter);
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

void Child::drain() {
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

std::string Child::reap(std::chrono::milliseconds grace) {
  alive = false;
  const Json answer = server->ask({{"op", "reap"}, {"starter", starter}, {"grace_ms", grace.count()}});
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
    int readable = 1;
    while (readable > 0) {
      readable = output ? protocol::wait_readable(std::array{socket.get(), output.get()}, deadline)
                        : protocol::wait_readable(std::array{socket.get()}, deadline);
      if (readable > 0) drain();
      if (readable > 0 && Clock::now() > deadline) readable = -1;
    }
    received.delivery = Delivery::late;
    try {
      if (readable == 0) received = protocol::receive(socket.get(), deadline);
    } catch (const std::exception& error) {
      reap(0ms);
      return {Status::crashed, fmt::format("it answered {}", error.what()), {}};
    }
  }
  switch (received.delivery) {
    case Delivery::message:
      drain();
      // An answer is no answer where the form has ended its starter, with which it is about to end itself.
      if (is_ending(starter)) return {Status::crashed, reap(1s), {}};
      return {Status::ok, {}, std::move(received.message)};
    case Delivery::late:
      reap(0ms);
      return {Status::timed_out, fmt::format("no answer within {} ms", limit.count()), {}};
    case Delivery::ended: break;
  }
  return {Status::crashed, reap(1s), {}};
}

}  // namespace fractus::process
