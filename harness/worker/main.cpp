// fractus-worker, the fork server: it has torch loaded and answers its parent by forking itself. It runs no torch
// operation and stays single-threaded, so that a fork is a clean copy. When its parent goes, everything it started
// ends.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "harness/worker/spawn.h"

using namespace fractus::worker;

int main() {
  struct stat status {};
  if (fstat(socket_fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    std::fputs("fractus-worker is started by fractus-verify, not by hand\n", stderr);
    return 64;
  }
  if (const std::size_t threads = thread_count(); threads > 1) {
    fmt::print(stderr, "a form's static initialiser has started threads: {} run before any call\n", threads - 1);
    return 70;
  }
  run_server(/*for_candidate=*/false);
  _exit(0);
}
