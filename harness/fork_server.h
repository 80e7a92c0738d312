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

// What the processes of one candidate have read as code, from whichever thread it is told.
class Noted {
 public:
  // Of an answer. Throws what reading JSON throws.
  void add(const protocol::Json& answer);
  void add(const outside::Loaded& more);
  outside::Loaded all() const;

 private:
  mutable std::mutex mutex_;
  outside::Loaded loaded_;
};

// A process that forks itself on demand.
struct Spawner {
  std::vector<FormInfo> forms;  // that its children can run
  Noted noted;

  Spawner() = default;
  virtual ~Spawner() = default;
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Throws where the process is gone or says that something is wrong.
  virtual protocol::Json ask(const protocol::Json& question, std::span<const int> descriptors = {}) = 0;
};

// The fork server: it has torch loaded. Its end, and that of all its children, comes with this object, or with the
// death of this process.
struct Server final : Spawner {
  std::string path;
  protocol::Descriptor socket;
  protocol::Descriptor errors;  // the reading end of its standard error
  std::string last_errors;      // the end of what it wrote there
  pid_t pid = -1;               // -1 once it has been waited for
  std::string ending;
  std::mutex mutex;  // one question at a time

  explicit Server(const std::filesystem::path& worker);  // throws std::runtime_error
  ~Server() override;

  // The description of its forms, which it gives once it is up. Throws std::runtime_error that says how it failed.
  protocol::Json first_answer(std::chrono::milliseconds patience);

  // Throws std::runtime_error.
  protocol::Json ask(const protocol::Json& question, std::span<const int> descriptors = {}) override;
  protocol::Json ask(const protocol::Json& question, std::chrono::milliseconds patience,
                     std::span<const int> descriptors = {});

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

enum class Serves {
  calls,
  one_candidate,  // it loads a form from outside and is a Spawner for that form
};

struct Child {
  std::shared_ptr<Spawner> server;
  pid_t pid = -1;
  pid_t starter = -1;                 // its parent, which has no other child; see harness/worker/spawn.cpp
  protocol::Descriptor starter_stat;  // what /proc says of it
  protocol::Descriptor socket;
  protocol::Descriptor output;  // the reading end of its standard output and error
  std::string tail;
  bool alive = false;

  // Throws what the spawner throws.
  Child(std::shared_ptr<Spawner> server, std::int64_t extra_bytes, Serves serves = Serves::calls);
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

// The process that has loaded one candidate from outside, and is forked for each process that serves its calls. What
// the candidate's file does when it is loaded, it does there.
struct Host final : Spawner {
  Child child;
  std::string ending;  // how the process ended; empty as long as it lives
  std::mutex mutex;    // one question at a time

  Host(std::shared_ptr<Spawner> from, std::int64_t extra_bytes)
      : child(std::move(from), extra_bytes, Serves::one_candidate) {}

  // Fills `forms`: with a form that has FormInfo::trouble where the candidate cannot be loaded. Throws NotThere.
  void load(const std::string& kernel, const std::string& candidate, std::chrono::milliseconds limit);

  // Throws CandidateGone where the process is.
  protocol::Json ask(const protocol::Json& question, std::span<const int> descriptors = {}) override;
};

// A form as the worker describes it.
FormInfo read_form(const protocol::Json& form);

}  // namespace fractus::process
