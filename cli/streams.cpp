#include "cli/streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "attest/files.h"
#include "cli/commands.h"

namespace fractus::cli {
namespace {

void end_by(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);  // from a handler: comes as soon as that returns
}

void interrupted(int signal_number) {
  remove_temporaries();
  end_by(signal_number);
}

[[noreturn]] void uncaught() {
  std::string text = "something that is no std::exception";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    text = "std::terminate was called";
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  say(fmt::format("fractus-verify: {}\n", text));
  _exit(our_failure);
}

}  // namespace

void prepare_process() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR) != descriptor) _exit(our_failure);
  signal(SIGPIPE, SIG_IGN);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup
    action = {};
    action.sa_handler = interrupted;
    sigfillset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
  std::set_terminate(uncaught);
}

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void print_whole(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw ClosedPipe("standard output was closed by its reader");
  throw std::runtime_error(fmt::format("standard output does not take it: {}", std::strerror(errno)));
}

void end_by_closed_pipe() {
  end_by(SIGPIPE);
  _exit(our_failure);
}

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

}  // namespace fractus::cli
