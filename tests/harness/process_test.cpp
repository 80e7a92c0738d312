// The life of the worker and its children: how they end, what they leave behind, what else they can be asked.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "tests/harness/example.h"

namespace fractus {
namespace {

// A zombie that init has not yet collected counts as gone.
bool exists(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return file >> number >> name >> state && state != "Z";
}

bool gone_soon(pid_t pid) {
  for (int i = 0; i < 400 && exists(pid); ++i) std::this_thread::sleep_for(10ms);
  return !exists(pid);
}

std::ptrdiff_t open_descriptors(const std::string& pid) {
  const std::filesystem::directory_iterator list("/proc/" + pid + "/fd");
  return std::distance(begin(list), end(list));
}

TEST(Workshop, DescribesForms) {
  const FormInfo* form = workshop().find_form("linear_attention", "test_plain");
  ASSERT_NE(form, nullptr);
  EXPECT_EQ(form->role, "wrong");
  EXPECT_EQ(form->settings.at("block"), 64);
  EXPECT_FALSE(form->declares_memory);
  EXPECT_EQ(workshop().extra_elements("linear_attention", "test_plain", {}, {}).elements, std::nullopt);
  EXPECT_EQ(workshop().find_form("linear_attention", "no_such"), nullptr);
}

TEST(Workshop, SaysThatThereIsNoWorker) {
  try {
    const Workshop none("/nowhere/fractus-worker");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/fractus-worker"), std::string::npos);
  }
}

// What a form's static initialiser does, it does before the worker can say anything.
TEST(Workshop, SaysHowTheWorkerFailedToComeUp) {
  const std::filesystem::path script =
      std::filesystem::temp_directory_path() / ("fractus_worker_" + std::to_string(getpid()));
  const auto trouble = [&](const std::string& body) -> std::string {
    std::ofstream(script) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    try {
      const Workshop none(script, 300ms);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "it came up";
  };
  const auto expect = [](const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
  };
  expect(trouble("echo what went wrong >&2; kill -ABRT $$"),
         {"did not come up: signal 6 (Aborted)", "static initialiser", "candidates/", "what went wrong"});
  expect(trouble("exit 3"), {"did not come up: exit status 3", "wrote nothing"});
  expect(trouble("echo waiting >&2; exec sleep 1000"), {"did not come up: no answer within 0.3 s", "waiting"});
  expect(trouble("exec yes >&2"), {"did not come up: no answer within 0.3 s", "y\ny"});
  expect(trouble("printf 'no message at all' >&3; exec sleep 1000"), {"did not come up: it answered a message of"});
  std::filesystem::remove(script);
}

TEST(Workshop, DeclaredMemoryThatCannotBeHadIsNoFailureOfOurs) {
  const auto declared = [](const char* form) {
    return workshop().extra_elements("linear_attention", form, {{"T", 7}}, {{"block", 3}}, 500ms);
  };
  EXPECT_EQ(declared("test_declares").elements, 21);
  EXPECT_EQ(declared("test_declares").trouble, "");
  for (const auto& [form, trouble] : std::map<std::string, std::string>{
           {"test_declares_by_raising", "it raised: what for"},
           {"test_declares_by_hanging", "no answer within 500 ms"},
           {"test_declares_by_exit", "the process that was asked ended: exit status 3"},
           {"test_declares_by_killing",
            "the process that was asked ended: it ended the process that had started it: "
            "signal 9 (Killed)"},
           {"test_declares_too_much", "it is 9223372036854775807 elements; wanted 0 to 1152921504606846975"},
           {"test_declares_less_than_nothing", "it is -1 elements; wanted 0 to 1152921504606846975"}}) {
    const Declared answer = declared(form.c_str());
    EXPECT_EQ(answer.elements, std::nullopt) << form;
    EXPECT_EQ(answer.trouble, trouble) << form;
  }
  EXPECT_THROW(declared("no_such"), std::runtime_error);
}

// A verdict that an environment variable changes is not the verdict on the form.
TEST(Workshop, TheEnvironmentChangesNoArithmetic) {
  const std::map<std::string, std::string> set{
      {"OMP_NUM_THREADS", "3"},           {"MKL_CBWR", "COMPATIBLE"},  {"GLIBC_TUNABLES", ""},
      {"ATEN_CPU_CAPABILITY", "default"}, {"LD_PRELOAD", ""},          {"MALLOC_PERTURB_", "7"},
      {"OMP_WAIT_POLICY", "active"},      {"TEST_ENVIRONMENT", "kept"}};
  for (const auto& [name, value] : set) setenv(name.c_str(), value.c_str(), 1);
  const Workshop own(test_worker());
  for (const auto& [name, value] : set) unsetenv(name.c_str());
  Process process = own.spawn();
  const std::vector<double> seen = call(process, example("test_environment"), 5s).outputs.at(0).values;
  EXPECT_EQ(std::vector<double>(seen.begin(), seen.begin() + 8), (std::vector<double>{1, 0, 0, 0, 0, 0, 1, 1}));
}

TEST(Ending, ExceptionLeavesTheProcessAlive) {
  Process process = workshop().spawn();
  Answer answer = call(process, example("test_raise"), 5s);
  EXPECT_EQ(answer.status, Status::raised);
  EXPECT_EQ(answer.message.find("wanted something else"), 0u);
  answer = call(process, example("test_raise_torch"), 5s);
  EXPECT_EQ(answer.status, Status::raised);
  EXPECT_EQ(answer.message.find("frame #"), std::string::npos) << answer.message;
  EXPECT_EQ(call(process, example("test_raise_int"), 5s).status, Status::raised);
  EXPECT_TRUE(process.alive());
  EXPECT_EQ(call(process, example("test_plain"), 5s).status, Status::ok);
}

TEST(Ending, CrashAndExitAreNamed) {
  const auto ending = [](const char* form) {
    Process process = workshop().spawn();
    const Answer answer = call(process, example(form), 20s);
    EXPECT_EQ(answer.status, Status::crashed);
    EXPECT_FALSE(process.alive());
    EXPECT_THROW(call(process, example("test_plain"), 5s), std::runtime_error);
    EXPECT_FALSE(exists(process.pid()));
    return answer.message;
  };
  EXPECT_EQ(ending("test_fault"), "signal 11 (Segmentation fault)");
  EXPECT_EQ(ending("test_exit"), "exit status 0");
  EXPECT_EQ(ending("test_exit_at_once"), "exit status 3");
  EXPECT_EQ(ending("test_closes"), "it closed its connection without an answer");
  EXPECT_EQ(ending("test_garbage"), "it answered a message that is no JSON object");
}

TEST(Ending, HangIsCutShort) {
  Process process = workshop().spawn();
  const auto start = std::chrono::steady_clock::now();
  const Answer answer = call(process, example("test_hang"), 100ms);
  EXPECT_EQ(answer.status, Status::timed_out);
  EXPECT_EQ(answer.message, "no answer within 100 ms");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_FALSE(process.alive());
  EXPECT_FALSE(exists(process.pid()));
}

TEST(Ending, TooMuchMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's allocator ends the process itself";
#endif
  Process process = workshop().spawn();
  EXPECT_EQ(call(process, example("test_hungry"), 5s).status, Status::out_of_memory);
  EXPECT_EQ(call(process, example("test_plain"), 5s).status, Status::ok);

  Process narrow = workshop().spawn({.extra_bytes = 8 << 20});
  Call large = example("test_plain");  // 16 MB of inputs alone
  large.inputs = {tensor("q", {1, 1, 2048}, 0), tensor("k", {1, 1, 2048}, 0), tensor("v", {1, 1, 2048}, 0),
                  tensor("S0", {1, 2048, 2048}, 0), std::nullopt};
  EXPECT_EQ(call(narrow, large, 5s).status, Status::out_of_memory);
}

TEST(Ending, OutputIsKeptAndBounded) {
  Process process = workshop().spawn();
  EXPECT_EQ(call(process, example("test_flood"), 20s).status, Status::ok);
  EXPECT_LE(process.output_tail().size(), 16u << 10);
  EXPECT_NE(process.output_tail().find("end of flood"), std::string::npos);
  EXPECT_EQ(call(process, example("test_flood_forever"), 200ms).status, Status::timed_out);
  EXPECT_NE(process.output_tail().find("and on"), std::string::npos);
  Process faulty = workshop().spawn();
  call(faulty, example("test_fault"), 5s);
  EXPECT_NE(faulty.output_tail().find("last words"), std::string::npos);
}

TEST(Ending, NothingIsLeftBehind) {
  pid_t server = 0;
  pid_t idle = 0;
  pid_t orphan = 0;
  {
    const Workshop own(test_worker());
    server = own.pid();
    const Process waiting = own.spawn();
    idle = waiting.pid();
    Process process = own.spawn();
    orphan = static_cast<pid_t>(call(process, example("test_orphan"), 5s).outputs.at(0).values[0]);
    EXPECT_TRUE(exists(server) && exists(idle) && exists(orphan));
  }
  EXPECT_FALSE(exists(server) || exists(idle) || exists(orphan));
}

TEST(Ending, NothingOutlivesTheParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const Workshop own(test_worker());
    Process process = own.spawn();
    const auto orphan = static_cast<pid_t>(call(process, example("test_orphan"), 5s).outputs.at(0).values[0]);
    const pid_t pids[3] = {own.pid(), process.pid(), orphan};
    if (write(ends[1], pids, sizeof pids) != sizeof pids) _exit(1);
    raise(SIGKILL);
  }
  pid_t pids[3];
  ASSERT_EQ(read(ends[0], pids, sizeof pids), static_cast<ssize_t>(sizeof pids));
  waitpid(parent, nullptr, 0);
  for (const pid_t pid : pids) EXPECT_TRUE(gone_soon(pid)) << pid;
  close(ends[0]);
  close(ends[1]);
}

TEST(Ending, WhoEndsItsParentIsNamed) {
  Process neighbour = workshop().spawn();
  const auto blamed = [&](const char* form, const char* ending) {
    Process process = workshop().spawn();
    const Answer answer = call(process, example(form), 20s);
    EXPECT_EQ(answer.status, Status::crashed) << form;
    EXPECT_EQ(answer.message, ending) << form;
    EXPECT_FALSE(process.alive());
    EXPECT_FALSE(exists(process.pid()));
    EXPECT_EQ(call(neighbour, example("test_plain"), 5s).status, Status::ok) << "the neighbour of " << form;
  };
  for (int again = 0; again < 50; ++again)  // it may answer before its parent's end reaches it
    blamed("test_kills_parent", "it ended the process that had started it: signal 9 (Killed)");
  blamed("test_terminates_parent", "it ended the process that had started it: signal 15 (Terminated)");
  blamed("test_kills_parents_group", "it ended the process that had started it: signal 9 (Killed)");
  blamed("test_outlives_parent", "it ended the process that had started it: signal 9 (Killed)");
  blamed("test_stops_parent", "it closed its connection without an answer");
}

TEST(Ending, DeathOfTheForkServerIsAnError) {
  const Workshop own(test_worker());
  Process process = own.spawn();
  const pid_t server = own.pid();
  kill(server, SIGKILL);
  ASSERT_TRUE(gone_soon(process.pid()));  // until its parent's death reaches it, it may still answer
  try {
    call(process, example("test_plain"), 5s);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("signal 9 (Killed)"), std::string::npos) << error.what();
  }
  EXPECT_THROW(own.spawn(), std::runtime_error);
}

TEST(Process, LeaksNothing) {
  Process process = workshop().spawn();
  const Call asked = with_backward(example("test_plain"));
  call(process, asked, 5s);
  const std::string pid = std::to_string(process.pid());
  const auto ours = open_descriptors("self");
  const auto theirs = open_descriptors(pid);
  EXPECT_EQ(theirs, 4);  // standard input, output and error, and the socket
  [[maybe_unused]] const std::int64_t resident = call(process, asked, 5s).peak_resident_bytes;
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(call(process, asked, 5s).status, Status::ok);
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed for a while
  EXPECT_LT(call(process, asked, 5s).peak_resident_bytes, resident + (4 << 20));
#endif
  for (int i = 0; i < 20; ++i) workshop().spawn();
  EXPECT_EQ(open_descriptors("self"), ours);
  EXPECT_EQ(open_descriptors(pid), theirs);
}

TEST(Measure, TimesEveryRun) {
  Process process = workshop().spawn();
  const Timing timing = measure(process, with_backward(example("test_holds_megabyte")), 1, 3, 20s);
  EXPECT_EQ(timing.status, Status::ok) << timing.message;
  ASSERT_EQ(timing.seconds.size(), 3u);
  ASSERT_EQ(timing.forward_seconds.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_GT(timing.seconds[i], timing.forward_seconds[i]);
  EXPECT_GE(timing.forward_peak_extra_bytes, (1 << 20) - 4096);
  EXPECT_GE(timing.peak_extra_bytes, (1 << 20) - 4096);
  EXPECT_GE(timing.resident_after, timing.resident_before);
  EXPECT_EQ(measure(process, example("test_raise"), 1, 3, 20s).status, Status::raised);
  EXPECT_EQ(measure(process, example("test_fault"), 1, 3, 20s).status, Status::crashed);
}

TEST(ReadArchive, NamesTheFileAndTheReason) {
  const auto message = [](const std::filesystem::path& path) -> std::string {
    try {
      workshop().read_archive(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "read";
  };
  EXPECT_EQ(message("/nowhere/a.pt"), "cannot read /nowhere/a.pt: No such file or directory");
  EXPECT_EQ(message("/tmp"), "cannot read /tmp: Is a directory");
  const std::filesystem::path text =
      std::filesystem::temp_directory_path() / ("fractus_" + std::to_string(getpid()) + ".pt");
  std::ofstream(text) << "this is no archive";
  EXPECT_EQ(message(text).find("cannot read " + text.string() + ": "), 0u);
  std::filesystem::remove(text);
}

TEST(ReadArchive, ReadsTensorsByName) {
  const std::filesystem::path golden = std::filesystem::path(FRACTUS_SOURCE) / "../shared/golden/attn_t65.pt";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << "no " << golden;
  const std::vector<Array> arrays = workshop().read_archive(golden);
  const auto q = std::find_if(arrays.begin(), arrays.end(), [](const Array& array) { return array.name == "q"; });
  ASSERT_NE(q, arrays.end());
  EXPECT_EQ(q->dtype, DType::float32);
  ASSERT_EQ(q->shape.size(), 3u);
  EXPECT_EQ(q->shape[1], 65);
  EXPECT_EQ(static_cast<std::int64_t>(q->values.size()), element_count(q->shape));
  for (const double value : q->values) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace fractus
