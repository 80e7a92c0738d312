// The way to a candidate: a fork server that has torch loaded, and children of it that run calls. What a candidate does
// to its process (crash, hang, exit, flood) ends as a Status of one Answer. This side never sees torch.
//
//   Workshop workshop;
//   Process process = workshop.spawn();
//   Answer answer = call(process, {...}, 5s);
//
// Failures of our own (worker not found, fork server gone, a call that does not fit its contract) are exceptions:
// std::runtime_error or std::invalid_argument. A Workshop and its Processes may be used from several threads, one
// Process from one thread at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contracts/call.h"
#include "contracts/contract.h"
#include "contracts/field_call.h"
#include "harness/outside.h"

namespace fractus {

// A registered form as the worker describes it.
struct FormInfo {
  std::string kernel;
  std::string name;
  std::string role;  // reference, candidate or wrong
  std::string summary;
  std::string shown_by;                          // of a wrong form: the property that is expected to catch it
  std::map<std::string, std::int64_t> settings;  // parameters and their defaults
  bool bit_equal_reruns = true;
  bool bit_equal_threads = false;
  bool bit_equal_neighbours = false;
  bool declares_memory = false;           // then Workshop::extra_elements answers
  std::string recomputes;                 // the form that it runs again in its backward; empty: none
  std::string trouble;                    // of a form from outside: why it could not be loaded; empty where it could
  std::chrono::milliseconds patience{0};  // beyond a call's ordinary limit: code may be generated in it
};

// A file is no source text of its language.
struct UnreadableSource : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The process that had loaded a form from outside has ended, which is the form's doing.
struct CandidateGone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Limits {
  std::int64_t extra_bytes = std::int64_t{12} << 30;  // address space above that of the idle worker
};

// `runs` executions of one call in the child, without transfers; filled only where status is ok.
struct Timing {
  Status status = Status::ok;
  std::string message;
  std::vector<double> forward_seconds;        // by run
  std::vector<double> seconds;                // by run, forward and backward
  std::int64_t resident_before = 0;           // peak resident bytes of the process before the first run ...
  std::int64_t resident_after = 0;            // ... and after the last
  std::int64_t forward_peak_extra_bytes = 0;  // torch's allocator, inputs and outputs not counted
  std::int64_t peak_extra_bytes = 0;          // the same over forward and backward, gradients not counted
};

namespace process {
struct Spawner;
struct Server;
struct Host;
struct Child;
}  // namespace process

// One forked child. Destruction kills it and everything in its process group.
class Process {
 public:
  explicit Process(std::unique_ptr<process::Child> child);
  ~Process();
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;

  bool alive() const;  // false after a crash or a time-out
  pid_t pid() const;
  std::string output_tail();  // the last 16 KB of what the child wrote to standard output and standard error

 private:
  std::unique_ptr<process::Child> child_;
  friend Answer call(Process&, const Call&, std::chrono::milliseconds);
  friend std::vector<Answer> call_together(Process&, const std::vector<Call>&, bool, std::chrono::milliseconds);
  friend FieldAnswer call_over_field(Process&, const FieldCall&, std::chrono::milliseconds);
  friend Timing measure(Process&, const Call&, int, int, std::chrono::milliseconds);
};

class Workshop {
 public:
  // Starts FRACTUS_WORKER, or fractus-worker from the folder of the running executable. A worker that is not up after
  // `patience` does not come up: std::runtime_error.
  Workshop();
  explicit Workshop(const std::filesystem::path& worker, std::chrono::milliseconds patience = std::chrono::minutes(1));

  const std::vector<FormInfo>& forms() const;  // of the build
  // Of the build or from outside. nullptr where there is none.
  const FormInfo* find_form(std::string_view kernel, std::string_view name) const;

  // Loads a candidate from outside, in a process of its own, and gives it as a form that find_form then knows by
  // `candidate`, its spelling. What goes wrong meanwhile is the candidate's doing and becomes FormInfo::trouble. A
  // candidate that was loaded before is loaded anew. Throws NotThere, std::invalid_argument where `candidate` is no
  // such spelling, std::runtime_error where Python itself cannot be started.
  const FormInfo& load(const std::string& kernel, const std::string& candidate,
                       std::chrono::milliseconds limit = std::chrono::minutes(1));

  // Forgets it, with its process. Nothing may use it any more.
  void unload(const std::string& kernel, const std::string& candidate);

  // The top-level names of a Python file, which is read and not run. Throws UnreadableSource.
  std::vector<outside::Outlined> outline(const std::filesystem::path& path);

  // What the form declares of its memory, from a process of its own. Whatever goes wrong there, and a number that is no
  // amount of memory, is the declaration's trouble. Throws std::runtime_error where there is no such form.
  Declared extra_elements(const std::string& kernel, const std::string& form, const Dims& dims,
                          const std::map<std::string, std::int64_t>& settings,
                          std::chrono::milliseconds limit = std::chrono::seconds(10)) const;

  // What was read as code of a form from outside, in all its processes up to now; nothing for a form of the build.
  outside::Loaded loaded(const FormInfo& form) const;

  // The running worker, which holds the forms of the build: the file that was started, whatever its path holds by now.
  std::filesystem::path program() const;

  // A fresh child that no call has touched, for forms of the build.
  Process spawn(const Limits& limits = {}) const;
  // The same for one form, from wherever it is. Throws CandidateGone.
  Process spawn_for(const FormInfo& form, const Limits& limits = {}) const;

  // The same in a process where the form has been loaded anew, by an interpreter of its own where it needs one: what a
  // file draws while it is loaded, and how Python salts the hashes of texts, is another there. A form of the build is
  // loaded nowhere twice, and spawned as ever.
  Process spawn_elsewhere(const FormInfo& form, const Limits& limits = {}) const;

  // The named tensors of a .pt file (a pickled dict of str to tensor), in the file's order. Bools and integers become
  // int64, half types float32; entries that are no tensors are skipped. A file that is no
  // regular one, is above 1 GiB or cannot be read so: std::runtime_error with its name and the reason.
  std::vector<Array> read_archive(const std::filesystem::path& path) const;

  pid_t pid() const;  // of the fork server

 private:
  using Hosts = std::map<std::pair<std::string, std::string>, std::shared_ptr<process::Host>, std::less<>>;
  std::shared_ptr<process::Server> start_python() const;
  std::shared_ptr<process::Server> python();

  std::shared_ptr<process::Server> server_;
  std::shared_ptr<process::Server> python_;  // started by the first candidate that needs it
  Hosts hosts_;                              // by kernel, name
  struct Elsewhere {
    std::mutex mutex;  // forms are measured from two threads
    std::shared_ptr<process::Server> python;
    Hosts hosts;
  };
  std::shared_ptr<Elsewhere> elsewhere_ = std::make_shared<Elsewhere>();
};

// Runs one call. A child that crashes or takes longer than `limit` is dead afterwards, and the answer says how.
// Throws std::runtime_error where the process was dead before or the fork server is gone, std::invalid_argument where
// the call does not fit: an unknown kernel, form or setting, a wrong number of tensors, an extent that differs, values
// that the layout cannot hold. Nothing that the form does leads to an exception.
Answer call(Process& process, const Call& call, std::chrono::milliseconds limit);

// Runs several calls of forms in one process that know of each other: all forwards in order, then the backwards, the
// last call's first where `last_first` (layers of a model) or in order (microbatches), and only then are results read.
// Calls that continue one another (Call::continues) have one graph and one backward. At most 32 calls; one answer each,
// and where the process failed that failure in every one.
std::vector<Answer> call_together(Process& process, const std::vector<Call>& calls, bool last_first,
                                  std::chrono::milliseconds limit);

// Runs one call over a finite field: of a process that runs such calls and no others. Whatever the form does becomes a
// status of the answer; one that reads a tensor's memory by itself, where the device shows none, is not algebraic.
// Throws as `call` does.
FieldAnswer call_over_field(Process& process, const FieldCall& call, std::chrono::milliseconds limit);

// Runs one call warmup + runs times and times the last `runs`. Memory is not poisoned and nothing is checked.
Timing measure(Process& process, const Call& call, int warmup, int runs, std::chrono::milliseconds limit);

}  // namespace fractus
