#include "harness/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace fractus {
namespace {

using namespace std::chrono_literals;

std::filesystem::path test_worker() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fractus-test-worker";
}

Workshop& workshop() {
  static Workshop shared(test_worker());
  return shared;
}

Array tensor(std::string name, Shape shape, double start, DType dtype = DType::float32) {
  Array array = zeros(std::move(name), dtype, std::move(shape));
  for (double& value : array.values) value = rounded(start += 0.1, dtype);
  return array;
}

// G 2, T 3, D 4.
Call example(const std::string& form, DType dtype = DType::float32) {
  Call call;
  call.kernel = "linear_attention";
  call.form = form;
  call.inputs = {tensor("q", {2, 3, 4}, 1, dtype), tensor("k", {2, 3, 4}, 2, dtype), tensor("v", {2, 3, 4}, 3, dtype),
                 tensor("S0", {2, 4, 4}, 4, dtype), tensor("z0", {2, 4}, 5, dtype)};
  return call;
}

Call with_backward(Call call) {
  call.cotangents = {tensor("y", {2, 3, 4}, 1), std::nullopt, tensor("z", {2, 4}, 2)};
  call.gradients = {true, true, false, false, false};
  return call;
}

Answer answer_to(const Call& asked) {
  Process process = workshop().spawn();
  return call(process, asked, 20s);
}

// "kind: text" of each breach, joined.
std::string breaches(const Answer& answer) {
  std::string all;
  for (const Breach& breach : answer.breaches) all += (all.empty() ? "" : "; ") + breach.kind + ": " + breach.text;
  return all;
}

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
  EXPECT_EQ(workshop().extra_elements("linear_attention", "test_plain", {}, {}), std::nullopt);
  EXPECT_EQ(workshop().find_form("linear_attention", "no_such"), nullptr);
}

TEST(Workshop, SaysThatThereIsNoWorker) {
  try {
    const Workshop none("/nowhere/fractus-worker");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/fractus-worker"), std::string::npos);
  }
  EXPECT_THROW(Workshop("/bin/false"), std::runtime_error);
}

TEST(Call, BringsValuesThereAndBack) {
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced}) {
      Call call = example("test_echo", dtype);
      call.layout = layout;
      const Answer answer = answer_to(call);
      ASSERT_EQ(answer.status, Status::ok) << answer.message;
      EXPECT_EQ(breaches(answer), "");
      ASSERT_EQ(answer.outputs.size(), 3u);
      EXPECT_EQ(answer.outputs[0].values, call.inputs[0]->values);
      EXPECT_EQ(answer.outputs[1].values, call.inputs[3]->values);
      EXPECT_EQ(answer.outputs[2].values, call.inputs[4]->values);
      EXPECT_EQ(answer.outputs[1].name, "S");
      EXPECT_EQ(answer.outputs[1].dtype, dtype);
      EXPECT_GT(answer.seconds, 0);
      EXPECT_GT(answer.peak_resident_bytes, 0);
    }
}

TEST(Call, LaysTensorsOutAsAsked) {
  const auto strides = [](Layout layout) {
    Call call = example("test_strides");
    call.layout = layout;
    for (auto& input : call.inputs)
      if (layout == Layout::expanded) std::fill(input->values.begin(), input->values.end(), 1.5);
    const Answer answer = answer_to(call);
    return std::vector<double>(answer.outputs.at(0).values.begin(), answer.outputs.at(0).values.begin() + 4);
  };
  EXPECT_EQ(strides(Layout::contiguous), (std::vector<double>{12, 4, 1, 0}));
  EXPECT_EQ(strides(Layout::transposed), (std::vector<double>{4, 8, 1, 0}));
  EXPECT_EQ(strides(Layout::sliced), (std::vector<double>{27, 9, 2, 1}));
  EXPECT_EQ(strides(Layout::expanded), (std::vector<double>{0, 4, 1, 0}));
}

TEST(Call, RefusesWhatDoesNotFit) {
  Process process = workshop().spawn();
  const auto refused = [&](auto change) {
    Call asked = example("test_plain");
    change(asked);
    EXPECT_THROW(call(process, asked, 5s), std::invalid_argument);
  };
  refused([](Call& call) { call.kernel = "no_such"; });
  refused([](Call& call) { call.inputs.pop_back(); });
  refused([](Call& call) { call.inputs[0].reset(); });
  refused([](Call& call) { call.inputs[1] = tensor("k", {2, 3, 5}, 1); });
  refused([](Call& call) { call.layout = Layout::expanded; });
  refused([](Call& call) { call.cotangents = {tensor("y", {2, 3}, 1)}; });
  Call unknown = example("no_such");
  EXPECT_THROW(call(process, unknown, 5s), std::runtime_error);
  unknown = example("test_plain");
  unknown.settings["no_such"] = 1;
  EXPECT_THROW(call(process, unknown, 5s), std::runtime_error);
  EXPECT_EQ(call(process, example("test_plain"), 5s).status, Status::ok);
}

TEST(Call, GivesGradients) {
  const Call asked = with_backward(example("test_plain"));
  const Answer answer = answer_to(asked);
  ASSERT_EQ(answer.status, Status::ok) << answer.message;
  EXPECT_EQ(breaches(answer), "");
  ASSERT_EQ(answer.gradients.size(), 5u);
  ASSERT_TRUE(answer.gradients[0] && answer.gradients[1]);
  EXPECT_FALSE(answer.gradients[2] || answer.gradients[3] || answer.gradients[4]);
  EXPECT_EQ(answer.gradients[0]->name, "q");
  for (std::size_t i = 0; i < answer.gradients[0]->values.size(); ++i)
    EXPECT_EQ(answer.gradients[0]->values[i], 2 * asked.cotangents[0]->values[i]);
  EXPECT_EQ(answer.gradients[1]->values[4], asked.cotangents[2]->values[0]);
  EXPECT_LT(answer.forward_seconds, answer.seconds);
}

TEST(Call, LeavesAbsentWhatGetsNoGradient) {
  Call asked = with_backward(example("test_detached"));
  asked.cotangents[2].reset();
  const Answer answer = answer_to(asked);
  EXPECT_EQ(answer.status, Status::ok);
  EXPECT_FALSE(answer.gradients[0] || answer.gradients[1]);
}

TEST(Call, SetsTheWorldAsAsked) {
  const auto world = [](const Call& call) {
    const Answer answer = answer_to(call);
    return std::vector<double>(answer.outputs.at(0).values.begin(), answer.outputs.at(0).values.begin() + 4);
  };
  Call call = example("test_world");
  call.gradients = {true};
  call.threads = 2;
  EXPECT_EQ(world(call), (std::vector<double>{2, 0, 0, 64}));  // threads, grad mode, requires_grad, block
  call.record_graph = true;
  call.settings["block"] = 5;
  EXPECT_EQ(world(call), (std::vector<double>{2, 1, 1, 5}));
  call = with_backward(example("test_world"));
  EXPECT_EQ(world(call), (std::vector<double>{1, 1, 1, 64}));
}

TEST(Call, KeepsStateWithinAProcessOnly) {
  Process process = workshop().spawn();
  EXPECT_EQ(call(process, example("test_counter"), 5s).outputs[0].values[0], 1);
  EXPECT_EQ(call(process, example("test_counter"), 5s).outputs[0].values[0], 2);
  EXPECT_EQ(answer_to(example("test_counter")).outputs[0].values[0], 1);
}

TEST(Call, FindsBreaches) {
  const auto found = [](const char* form) { return breaches(answer_to(example(form))); };
  EXPECT_EQ(found("test_plain"), "");
  EXPECT_EQ(found("test_columns"), "");
  EXPECT_EQ(found("test_count"), "count: wanted 3 outputs, got 2");
  EXPECT_EQ(found("test_absent"), "count: y is absent");
  EXPECT_EQ(found("test_shape"), "shape: y: wanted (2, 3, 4), got (3, 2, 4)");
  EXPECT_EQ(found("test_dtype"), "dtype: y: wanted float32, got float64");
  EXPECT_EQ(found("test_device"), "device: y: wanted a plain tensor on the CPU, got one on meta");
  EXPECT_EQ(found("test_alias_input"), "alias: y lies in the memory of the input q");
  EXPECT_EQ(found("test_alias_output"), "alias: z shares elements with S");
  EXPECT_EQ(found("test_unwritten"), "unwritten: y[1, 2, 3] holds what was in memory before");
  EXPECT_EQ(found("test_modifies_input"), "modified-input: changed k[0, 0, 1]");
  EXPECT_EQ(found("test_behind_input"), "guard: wrote behind the last element of v");
  EXPECT_EQ(found("test_before_input"), "guard: wrote before the first element of q");
  EXPECT_EQ(found("test_behind_block"), "guard: wrote behind a block of 128 bytes");
  EXPECT_EQ(found("test_random"), "random-state: the global random generator was used or seeded");
}

TEST(Call, FindsWritesBetweenElements) {
  Call call = example("test_between");
  call.layout = Layout::sliced;
  EXPECT_EQ(breaches(answer_to(call)), "guard: wrote between the elements of k");
}

TEST(Call, ComparesASecondBackward) {
  const auto found = [](const char* form) {
    Call call = with_backward(example(form));
    call.backward_twice = true;
    return breaches(answer_to(call));
  };
  EXPECT_EQ(found("test_plain"), "");
  EXPECT_EQ(found("test_fickle"),
            "second-backward: the gradient of q differs in a second backward through the same graph");
  EXPECT_EQ(found("test_once"), "second-backward: a second backward through the same graph raised: already used");
}

TEST(Call, HandsOverOnlyWhatFits) {
  const Answer answer = answer_to(example("test_shape"));
  EXPECT_EQ(answer.status, Status::ok);
  ASSERT_EQ(answer.outputs.size(), 3u);
  EXPECT_EQ(answer.outputs[0], Array{});
  EXPECT_EQ(answer.outputs[1].name, "S");
}

TEST(Call, CountsMemory) {
  const std::int64_t plain = answer_to(example("test_plain")).peak_extra_bytes;
  const std::int64_t holding = answer_to(example("test_holds_megabyte")).peak_extra_bytes;
  EXPECT_LT(plain, 4096);
  EXPECT_GE(holding, (1 << 20) - 4096);  // the outputs, which are not counted, were not yet there at the peak
  EXPECT_LT(holding, (1 << 20) + 4096);
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
  Process process = workshop().spawn();
  EXPECT_EQ(call(process, example("test_hungry"), 5s).status, Status::out_of_memory);
  EXPECT_EQ(call(process, example("test_plain"), 5s).status, Status::ok);
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

TEST(Ending, DeathOfTheForkServerIsAnError) {
  const Workshop own(test_worker());
  Process process = own.spawn();
  const pid_t server = own.pid();
  kill(server, SIGKILL);
  try {
    call(process, example("test_plain"), 5s);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("signal 9 (Killed)"), std::string::npos) << error.what();
  }
  EXPECT_THROW(own.spawn(), std::runtime_error);
  EXPECT_TRUE(gone_soon(process.pid()));
}

TEST(Call, LeaksNothing) {
  Process process = workshop().spawn();
  const Call asked = with_backward(example("test_plain"));
  call(process, asked, 5s);
  const std::string pid = std::to_string(process.pid());
  const auto ours = open_descriptors("self");
  const auto theirs = open_descriptors(pid);
  EXPECT_EQ(theirs, 4);  // standard input, output and error, and the socket
  const std::int64_t resident = call(process, asked, 5s).peak_resident_bytes;
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(call(process, asked, 5s).status, Status::ok);
  EXPECT_LT(call(process, asked, 5s).peak_resident_bytes, resident + (4 << 20));
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
  const std::filesystem::path golden = "/work/shared/golden/attn_t65.pt";
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
