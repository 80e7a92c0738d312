// Candidates from outside that are broken or hostile: each gets its verdict, with the fact named, in bounded time, and
// leaves no process behind. The functions are in tests/outside/hostile.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <tuple>

#include "harness/judge.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

using Clock = std::chrono::steady_clock;

std::string hostile(const std::string& function) {
  return std::string(FRACTUS_SOURCE "/tests/outside/hostile.py:") + function;
}

std::filesystem::path scratch() {
  return std::filesystem::temp_directory_path() / ("fractus-outside-" + std::to_string(getpid()));
}

FormInfo outside_form(const std::string& name) {
  return {.kernel = "linear_attention", .name = name, .role = "candidate"};
}

Result judged(const std::string& candidate, const std::string& property, std::chrono::milliseconds load_limit = 20s) {
  const FormInfo form = outside_form(candidate);
  const Plan plan = make_plan({.driver = find_driver("linear_attention"),
                               .candidate = form,
                               .preset = "smoke",
                               .seed = 3,
                               .dtypes = {DType::float32},
                               .only = {property}},
                              workshop().forms());
  workshop().load(form.kernel, candidate, load_limit);
  JudgeSettings settings;
  settings.partial = true;
  settings.fixtures = scratch();
  Result result = judge(workshop(), *find_driver("linear_attention"), plan, settings);
  workshop().unload(form.kernel, candidate);
  std::filesystem::remove_all(settings.fixtures);
  return result;
}

bool runs(const std::string& argument) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "cmdline");
    const std::string line((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (line.find(argument) != std::string::npos) return true;
  }
  return false;
}

struct Deed {
  const char* function;
  const char* property;
  Verdict verdict;
  const char* fact;  // that the reason names
};

class Hostile : public testing::TestWithParam<Deed> {};

// Protects: whatever a candidate does costs one line of report, and that line says what it did.
TEST_P(Hostile, IsNamed) {
  const Deed& deed = GetParam();
  const auto start = Clock::now();
  const Result result = judged(hostile(deed.function), deed.property);
  EXPECT_EQ(result.verdict, deed.verdict) << name(result.verdict);
  ASSERT_FALSE(result.reasons.empty());
  EXPECT_NE(result.reasons.front().find(deed.fact), std::string::npos) << result.reasons.front();
  EXPECT_LT(Clock::now() - start, 60s);
}

constexpr Verdict failed = Verdict::failed, different = Verdict::different;

INSTANTIATE_TEST_SUITE_P(
    Candidates, Hostile,
    testing::Values(
        Deed{"raises", "contract", failed, "ValueError: no kernel for"},
        Deed{"raises_in_backward", "contract", failed, "LookupError: lost the way back"},
        Deed{"returns_none", "contract", failed, "wanted a tuple of 3 tensors (y, S, z), got None"},
        Deed{"returns_list", "contract", failed, "wanted a tuple of 3 tensors (y, S, z), got a value of type list"},
        Deed{"returns_two", "contract", failed, "got a tuple of 2"},
        Deed{"returns_float", "contract", failed, "z: wanted a tensor, got a value of type float"},
        Deed{"wrong_dtype", "contract", failed, "y: wanted float32, got Half"},
        Deed{"wrong_shape", "contract", failed, "y: wanted (1, 1, 1), got (1, 1, 1, 1)"},
        Deed{"wrong_device", "contract", failed, "y: wanted a plain tensor on the CPU, got one on meta"},
        Deed{"sparse", "contract", failed, "z: wanted a plain tensor on the CPU, got one on cpu that is not strided"},
        Deed{"tensor_subclass", "contract", failed, "y: wanted a plain tensor, got a value of type Lazy"},
        Deed{"aliases_input", "contract", failed, "y lies in the memory of the input v"},
        Deed{"returns_input", "contract", failed, "z lies in the memory of the input z0"},
        Deed{"not_a_number", "contract", different, "nan, the definition gives"},
        Deed{"exits", "contract", failed, "SystemExit: 0"},
        Deed{"exits_at_once", "contract", failed, "its process ended: exit status 0"},
        Deed{"segfaults", "contract", failed, "signal 11 (Segmentation fault)"},
        Deed{"loops", "contract", failed, "no answer within"}, Deed{"sleeps", "contract", failed, "no answer within"},
        Deed{"leaves_a_child", "contract", failed, "its process ended: exit status 3"},
        Deed{"kills_its_parents", "contract", failed, "the process that had loaded it has ended: signal 9 (Killed)"},
        Deed{"allocates_100_gb", "contract", failed, "memory"},
        Deed{"allocates_100_gb_in_python", "contract", failed, "memory"},
        Deed{"floods", "contract", failed, "OSError: done with writing"},
        Deed{"cached_answer", "repeat", different, ""}, Deed{"view_that_changes", "repeat", different, ""},
        Deed{"depends_on_order", "repeat", different, ""}, Deed{"depends_on_requires_grad", "repeat", different, ""},
        Deed{"depends_on_threads", "repeat", different, ""},
        Deed{"patches_torch", "contract", failed, "torch.matmul was replaced"},
        Deed{"patches_tensor", "contract", failed, "torch.Tensor.clone was replaced"},
        Deed{"modifies_input", "contract", failed, "changed q["},
        Deed{"seeds", "contract", failed, "the global random generator was used or seeded"},
        Deed{"seeds_python", "contract", failed, "Python's random generator was used or seeded"},
        Deed{"seeds_numpy", "contract", failed, "numpy's random generator was used or seeded"},
        Deed{"patches_optimizer", "contract", failed, "torch.optim.SGD.step was replaced"},
        Deed{"patches_math", "contract", failed, "math.exp was replaced"},
        Deed{"looks_for_anomalies", "contract", failed, "the search for anomalies in autograd was switched"},
        Deed{"moves_away", "contract", failed, "the working directory was changed"},
        Deed{"sets_a_gradient", "contract", failed, "q was given a gradient before any backward"},
        Deed{"sets_threads", "contract", failed, "the number of threads was changed"},
        Deed{"other_signature", "contract", failed, "wanted the arguments q, k, v, S0, z0 by name"},
        Deed{"not_a_function", "contract", failed, "wanted a function, got int"}),
    [](const auto& info) { return std::string(info.param.function); });

// Protects: what makes the tests above mean something. The same file's right function has nothing against it.
TEST(Outside, ARightFunctionPasses) {
  for (const char* property : {"contract", "repeat", "memory", "exact"}) {
    const Result result = judged(hostile("right"), property);
    EXPECT_EQ(result.verdict, Verdict::undecided);
    EXPECT_EQ(result.properties.front().verdict, "PASSED") << result.reasons.front();
  }
}

// Protects: a right function whose backward a harness cannot ask for the gradients of given inputs.
TEST(Outside, AReentrantCheckpointPasses) {
  for (const char* property : {"contract", "gradients"}) {
    const Result result = judged(hostile("right_by_reentrant_checkpoint"), property);
    EXPECT_EQ(result.properties.front().verdict, "PASSED") << result.reasons.front();
  }
}

// Protects: a process that outlives its candidate, and what a candidate prints.
TEST(Outside, NothingStaysAndOutputIsShown) {
  judged(hostile("leaves_a_child"), "contract");
  for (int i = 0; i < 100 && runs("987654"); ++i) std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(runs("987654"));
  const Result result = judged(hostile("floods"), "contract");
  EXPECT_NE(result.candidate_output.find("all work and no play"), std::string::npos);
}

// Protects: the verdict of a form of the build that is held against a function from outside, whatever that one does.
TEST(Outside, AReferenceCostsNoMoreThanACandidate) {
  for (const auto& [function, verdict, fact] :
       {std::tuple("right", Verdict::undecided, "partial"),
        {"loops", Verdict::mistrusted, "no answer within"},
        {"kills_its_parents", Verdict::mistrusted, "the process that had loaded it has ended"},
        {"leaves_a_child", Verdict::mistrusted, "exit status 3"},
        {"cached_answer", Verdict::mistrusted, "itself fails"}}) {
    std::vector<FormInfo> forms = workshop().forms();
    std::erase_if(forms, [](const FormInfo& form) { return form.role == "wrong"; });
    const Plan plan = make_plan({.driver = find_driver("linear_attention"),
                                 .candidate = *workshop().find_form("linear_attention", "chunked_tail"),
                                 .preset = "smoke",
                                 .seed = 3,
                                 .dtypes = {DType::float32},
                                 .only = {"contract", "repeat"},
                                 .reference = outside_form(hostile(function))},
                                forms);
    workshop().load(plan.kernel, plan.reference, 20s);
    JudgeSettings settings;
    settings.partial = true;
    settings.fixtures = scratch();
    const Result result = judge(workshop(), *find_driver("linear_attention"), plan, settings);
    workshop().unload(plan.kernel, plan.reference);
    std::filesystem::remove_all(settings.fixtures);
    EXPECT_EQ(result.verdict, verdict) << function << ": " << name(result.verdict);
    EXPECT_NE(result.reasons.front().find(fact), std::string::npos) << result.reasons.front();
    for (const PropertyResult& p : result.properties) EXPECT_EQ(p.verdict, "PASSED") << function << ": " << p.name;
    EXPECT_LT(result.seconds, 60) << function;
  }
  for (int i = 0; i < 100 && runs("987654"); ++i) std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(runs("987654"));
}

struct File {
  const char* name;
  const char* text;
  const char* fact;
};

class Loading : public testing::TestWithParam<File> {};

// Protects: the file of a candidate is its code too. It runs in the candidate's own process, and ends as its verdict.
TEST_P(Loading, IsNamed) {
  const std::filesystem::path folder = scratch() / "files";
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = folder / (std::string(GetParam().name) + ".py");
  std::ofstream(file) << GetParam().text << "\ndef f(q, k, v, S0=None, z0=None):\n  return q, k, v\n";
  const auto start = Clock::now();
  const Result result = judged(file.string() + ":f", "contract", 3s);
  EXPECT_EQ(result.verdict, Verdict::failed);
  ASSERT_FALSE(result.reasons.empty());
  EXPECT_NE(result.reasons.front().find("it cannot be loaded"), std::string::npos) << result.reasons.front();
  EXPECT_NE(result.reasons.front().find(GetParam().fact), std::string::npos) << result.reasons.front();
  EXPECT_LT(Clock::now() - start, 30s);
  // Whoever comes next is served.
  EXPECT_EQ(judged(hostile("raises"), "contract").verdict, Verdict::failed);
}

INSTANTIATE_TEST_SUITE_P(
    Files, Loading,
    testing::Values(
        File{"raises", "raise KeyError('no weights')", "KeyError: 'no weights'"},
        File{"is_no_python", "def g(:\n  pass", "SyntaxError"},
        File{"imports_nothing", "import no_such_module", "No module named 'no_such_module'"},
        File{"exits", "import sys; sys.exit(0)", "SystemExit: 0"},
        File{"exits_at_once", "import os; os._exit(0)", "exit status 0"},
        File{"segfaults", "import ctypes; ctypes.string_at(8)", "signal 11 (Segmentation fault)"},
        File{"loops", "while True: pass", "no answer within 3000 ms"},
        File{"kills_its_parent", "import os, time; os.kill(os.getppid(), 9); time.sleep(10)", "signal 9 (Killed)"},
        File{"starts_a_thread",
             "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
             "it has left 1 threads running"},
        File{"patches_torch", "import torch\ntorch.matmul = torch.mul", "torch.matmul was replaced"},
        File{"allocates", "import torch\nx = torch.empty(25_000_000_000)", "memory"},
        File{"floods", "for _ in range(3000): print('all work and no play ' * 50)\nraise OSError('done')",
             "all work and no play"}),
    [](const auto& info) { return std::string(info.param.name); });

// Protects: the nearest name can be said.
TEST(Outside, AnAbsentFunctionIsNotThere) {
  try {
    workshop().load("linear_attention", hostile("rigth"));
    FAIL();
  } catch (const outside::NotThere& error) {
    EXPECT_NE(std::find(error.known.begin(), error.known.end(), "right"), error.known.end());
  }
}

// Protects: spellings.
TEST(Outside, Spellings) {
  const auto spec = outside::spec_from("a.py/b:c/d.so:name::op");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->path, "a.py/b:c/d.so");
  EXPECT_EQ(spec->name, "name::op");
  EXPECT_FALSE(outside::spec_from("chunked:block=16"));
  EXPECT_FALSE(outside::spec_from("chunked"));
  for (const char* wrong : {"file.py", "file.py:", ".py:f", "file.cu:f", "./file", "lib.so", "program.pt:forward"})
    EXPECT_THROW(outside::spec_from(wrong), std::invalid_argument) << wrong;
}

}  // namespace
}  // namespace fractus
