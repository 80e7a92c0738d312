// fractus-worker, the fork server: it has torch loaded and answers its parent by forking itself. It runs no torch
// operation and stays single-threaded, so that a fork is a clean copy. When its parent goes, everything it started
// ends.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "harness/worker/spawn.h"

constexpr int socket_fd = 3;

int main() {
  struct stat status {};
  if (fstat(socket_fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    std::fputs("fractus-worker is started by fractus-verify, not by hand\n", stderr);
    return 64;
  }
  // Threads do not survive a fork, and locks that they hold do: every child would be at risk.
  if (const auto threads = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); threads > 1) {
    fmt::print(stderr, "a form's static initialiser has started threads: {} run before any call\n", threads - 1);
    return 70;
  }
  fractus::worker::run_server(/*for_candidate=*/false);
  _exit(0);
}
