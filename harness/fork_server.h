// The mechanics under harness/process.h: the fork server as its parent sees it, and one child of it, with the
// conversation, the time limit, the captured output and the end of each.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "harness/process.h"
#include "harness/protocol.h"

namespace fractus::process {

inline constexpr std::size_t tail_bytes = 16 << 10;  // kept of what a process prints

// The fork server: a process that has torch loaded and forks itself on demand. Its end, and that of all its children,
// comes with this object, or with the death of this process.
struct Server {
  std::string path;
  protocol::Descriptor socket;
  protocol::Descriptor errors;  // the reading end of its standard error
  std::string last_errors;      // the end of what it wrote there
  pid_t pid = -1;               // -1 once it has been waited for
  std::string ending;
  std::mutex mutex;  // one question at a time
  std::vector<FormInfo> forms;

  explicit Server(const std::filesystem::path& worker);  // throws std::runtime_error
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The description of its forms, which it gives once it is up. Throws std::runtime_error that says how it failed.
  protocol::Json first_answer(std::chrono::milliseconds patience);

  // Throws std::runtime_error where the server is gone or says that something is wrong.
  protocol::Json ask(const protocol::Json& question, std::span<const int> descriptors = {});

 private:
  std::optional<protocol::Json> answer_to(const protocol::Json& question, std::span<const int> descriptors,
                                          std::chrono::milliseconds patience);
  void wait_for_end(std::chrono::milliseconds patience);
};

// What came back for one request.
struct Reply {
  Status status = Status::ok;
  std::string message;
  protocol::Message content;  // where status is ok
};

struct Child {
  std::shared_ptr<Server> server;
  pid_t pid = -1;
  pid_t starter = -1;                 // its parent, which has no other child; see harness/worker/main.cpp
  protocol::Descriptor starter_stat;  // what /proc says of it
  protocol::Descriptor socket;
  protocol::Descriptor output;  // the reading end of its standard output and error
  std::string tail;
  bool alive = false;

  Child(std::shared_ptr<Server> server, std::int64_t extra_bytes);  // throws std::runtime_error
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Keeps the end of what has been written so far. Bounded work, so that a flood cannot hold the caller.
  void drain();

  // Ends the child and all that it started; after `grace` it is killed where it has not ended by itself. Says how it
  // ended.
  std::string reap(std::chrono::milliseconds grace);

  // Throws std::runtime_error where the child was dead before.
  Reply exchange(const protocol::Json& request, std::span<const int> descriptors, std::chrono::milliseconds limit);
};

}  // namespace fractus::process
