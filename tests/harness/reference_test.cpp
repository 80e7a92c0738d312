// A second form beside the candidate (--reference): judged as it is, never the measure of it, and no verdict where it
// is wrong itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>
#include <tuple>

#include "harness/fixture.h"
#include "harness/judge.h"
#include "properties/compare.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

std::filesystem::path scratch() {
  return std::filesystem::temp_directory_path() / ("fractus-reference-" + std::to_string(getpid()));
}

// The plan of a candidate that is held against a reference.
Plan against(const Workshop& workshop, const std::string& candidate, const std::string& reference,
             const std::vector<std::string>& only, std::map<std::string, std::int64_t> settings = {},
             std::vector<DType> dtypes = {DType::float32}) {
  std::vector<FormInfo> forms = workshop.forms();
  std::erase_if(forms, [](const FormInfo& form) { return form.role == "wrong"; });
  return make_plan({.driver = &driver(),
                    .candidate = *workshop.find_form("linear_attention", candidate),
                    .preset = "smoke",
                    .seed = 3,
                    .dtypes = std::move(dtypes),
                    .only = only,
                    .reference = *workshop.find_form("linear_attention", reference),
                    .reference_settings = std::move(settings)},
                   forms);
}

Result judged_by(const Workshop& workshop, const Plan& plan, JudgeSettings settings = {}) {
  settings.partial = true;
  settings.fixtures = scratch();
  return judge(workshop, driver(), plan, settings);
}

template <class Judged>  // Result or Reference
const PropertyResult& of(const Judged& judged, const std::string& name) {
  return *std::find_if(judged.properties.begin(), judged.properties.end(),
                       [&](const PropertyResult& p) { return p.name == name; });
}

// The largest distance of two forms on the rounding cases, in bounds of the element; where the plan says that it is
// bounded: a decided element of a call without a choice in doubt.
double distance(const Plan& plan) {
  const auto form = [&](const std::string& name) { return *real_workshop().find_form(plan.kernel, name); };
  Attached candidate(real_workshop(), form(plan.candidate), plan.settings);
  Attached reference(real_workshop(), form(plan.reference), plan.reference_settings);
  double most = 0;
  for (const Case& c : plan.cases) {
    if (c.property != "rounding") continue;
    Expectation expectation(driver(), c, 1);
    const Answer a = candidate.subject().call(call_of(expectation, candidate.subject()));
    const Answer b = reference.subject().call(call_of(expectation, reference.subject()));
    const auto expected = expectation.expected(a);
    if (expected->choices_in_doubt > 0) continue;
    for (std::size_t j = 0; j < expected->outputs.size(); ++j)
      for (std::size_t i = 0; i < expected->outputs[j].value.size(); ++i) {
        const auto decided = [&](const Answer& answer) {
          return oracle::judge(expected->outputs[j], expected->radius_per_tolerance, i, answer.outputs[j].values[i])
                     .verdict == oracle::Verdict::equal;
        };
        const double off = std::fabs(a.outputs[j].values[i] - b.outputs[j].values[i]);
        if (off > 0 && decided(a) && decided(b)) most = std::max(most, off / expected->outputs[j].tolerance[i]);
      }
  }
  return most;
}

// Protects: two forms in production held against each other. Both go through every case, and what the report says of
// their distance is so, and no empty promise.
TEST(Reference, IsJudgedAsTheCandidateIs) {
  const Plan plan = against(real_workshop(), "chunked_tail", "cumsum", {});
  const Result result = judged_by(real_workshop(), plan);
  ASSERT_TRUE(result.reference);
  EXPECT_EQ(result.reference->verdict, "PASSED");
  EXPECT_TRUE(result.reference->failures.empty());
  ASSERT_EQ(result.reference->properties.size(), result.properties.size());
  for (const PropertyResult& p : result.properties) {
    EXPECT_EQ(p.verdict, "PASSED") << p.name;
    const PropertyResult& its = of(*result.reference, p.name);
    EXPECT_EQ(its.verdict, "PASSED") << p.name;
    EXPECT_EQ(its.cases, p.planned) << p.name;
    EXPECT_EQ(its.bit_equal > 0, p.bit_equal > 0) << p.name;
    EXPECT_EQ(its.worst() > 0, p.worst() > 0) << p.name;
  }
  const auto sums = apart(of(result, "rounding"), of(*result.reference, "rounding"));
  double most = 0;
  for (const auto& [key, sum] : sums) most = std::max(most, sum);
  const double measured = distance(plan);
  EXPECT_GT(measured, 0.01);  // the two are no copies
  EXPECT_LE(measured, most);
  EXPECT_LT(most, 2);
  EXPECT_NE(to_text(result, false).find("the two differ by at most"), std::string::npos);
  EXPECT_NE(to_markdown(result).find("--reference cumsum"), std::string::npos);
}

// Protects: nobody is told that a form may replace one that is wrong, and what is wrong with that one can be seen
// again.
TEST(Reference, ThatIsWrongIsNamed) {
  const Result result = judged_by(real_workshop(), against(real_workshop(), "chunked_tail",
                                                           "wrong_dk_lacks_denominator", {"rounding", "gradients"}));
  EXPECT_EQ(result.verdict, Verdict::mistrusted);
  for (const PropertyResult& p : result.properties) EXPECT_EQ(p.verdict, "PASSED") << p.name;
  EXPECT_EQ(result.reference->verdict, "DIFFERENT");
  EXPECT_EQ(of(*result.reference, "rounding").verdict, "PASSED");
  const PropertyResult& gradients = of(*result.reference, "gradients");
  EXPECT_EQ(gradients.verdict, "DIFFERENT");
  ASSERT_TRUE(gradients.witness);
  EXPECT_LE(gradients.witness->smallest.dims.at("T"), 4);
  for (const std::string& part :
       {std::string("'wrong_dk_lacks_denominator' itself fails gradients"), label(gradients.witness->smallest),
        gradients.finding->text, gradients.witness->replay})
    EXPECT_NE(result.reasons.front().find(part), std::string::npos) << part << "\n" << result.reasons.front();
  EXPECT_FALSE(gradients.witness->replay.empty());
  EXPECT_EQ(read_fixture(gradients.witness->fixture).candidate, "wrong_dk_lacks_denominator");
  EXPECT_TRUE(apart(of(result, "gradients"), gradients).empty());

  // A candidate that is wrong too is told so first.
  const Result both = judged_by(real_workshop(), against(real_workshop(), "wrong_sign_lost",
                                                         "wrong_dk_lacks_denominator", {"rounding", "gradients"}));
  EXPECT_EQ(both.verdict, Verdict::different);
  EXPECT_NE(to_text(both, false).find("itself fails gradients"), std::string::npos) << to_text(both, false);
}

// Protects: --waive and --budget, which mean both forms.
TEST(Reference, KeepsToWaiversAndBudget) {
  const Plan plan = against(real_workshop(), "chunked_tail", "wrong_second_backward_throws", {"contract"});
  EXPECT_EQ(judged_by(real_workshop(), plan).verdict, Verdict::mistrusted);
  const Result waived = judged_by(real_workshop(), plan, {.waived = {"single-backward"}});
  EXPECT_EQ(waived.verdict, Verdict::undecided);  // partial
  EXPECT_EQ(of(waived, "contract").verdict, "PASSED");
  EXPECT_EQ(of(*waived.reference, "contract").verdict, "WAIVED");
  EXPECT_GT(waiver_uses(waived).at("single-backward"), 0);
  EXPECT_FALSE(apart(waived)) << "what was waived has no ratio";

  const Result cut = judged_by(real_workshop(), plan, {.budget = std::chrono::duration<double>(0.1)});
  EXPECT_LT(of(cut, "contract").cases, of(cut, "contract").planned);
  EXPECT_EQ(of(*cut.reference, "contract").cases > 0, of(cut, "contract").cases > 0);
  EXPECT_LT(cut.seconds, 10);
}

// Protects: the candidate's verdict from what it is held against. The line is drawn by the same forms as without it.
TEST(Reference, SetsNoLine) {
  const Workshop workshop(test_worker());
  Plan plan = against(workshop, "test_coarse", "test_coarse", {"rounding", "gradients"}, {{"block", 32}},
                      {DType::float32, DType::float64});
  const Result beside = judged_by(workshop, plan);
  plan.reference.clear();
  const Result alone = judged_by(workshop, plan);
  EXPECT_EQ(beside.reference->verdict, "PASSED");
  const std::string reasons = of(alone, "rounding").reason + of(alone, "gradients").reason;
  EXPECT_NE(reasons.find("quarantined: S T 128-255"), std::string::npos) << reasons;
  for (const PropertyResult& p : alone.properties) {
    EXPECT_EQ(of(beside, p.name).reason, p.reason);
    EXPECT_EQ(of(beside, p.name).known_good_ratio, p.known_good_ratio);
    EXPECT_EQ(of(beside, p.name).worst_ratio, p.worst_ratio);
  }
}

// Protects: replay, and the plan of a run without a reference, which one beside it does not change but for the hash.
TEST(Reference, IsInThePlansHashAlone) {
  const FormInfo& candidate = *real_workshop().find_form("linear_attention", "chunked");
  const FormInfo& reference = *real_workshop().find_form("linear_attention", "chunked_tail");
  const auto plan = [&](PlanRequest request) {
    request.driver = &driver();
    request.candidate = candidate;
    request.seed = 1;
    return make_plan(request, real_workshop().forms());
  };
  const Plan without = plan({}), with = plan({.reference = reference}),
             other = plan({.reference = reference, .reference_settings = {{"block", 16}}});
  EXPECT_EQ(without.known_good, with.known_good);
  EXPECT_EQ(without.known_wrong, with.known_wrong);
  EXPECT_EQ(without.generation.block, with.generation.block);
  EXPECT_EQ(without.cases.size(), with.cases.size());
  EXPECT_EQ(with.hash, plan({.reference = reference}).hash);
  EXPECT_NE(without.hash, with.hash);
  EXPECT_NE(with.hash, other.hash);
  EXPECT_EQ(other.reference_settings.at("block"), 16);
}

// Processes that come from one.
int descendants(pid_t of) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto behind_name = stat.rfind(") ");
    if (behind_name == std::string::npos || stat[behind_name + 2] == 'Z') continue;
    if (std::stoi(stat.substr(behind_name + 4)) == of)
      count += 1 + descendants(std::stoi(entry.path().filename().string()));
  }
  return count;
}

// Protects: the run from a reference that hangs or dies. It costs one time limit, or three processes and the search for
// its smallest case, and is gone afterwards.
TEST(Reference, ThatHangsOrDiesIsBounded) {
  const Workshop workshop(test_worker());
  const std::vector<std::string> only{"contract", "exact", "choices", "rounding", "gradients", "carry"};
  const int before = descendants(workshop.pid());
  for (const auto& [reference, fact, cases] :
       {std::tuple("test_hang", "no answer within", 1), {"test_exit_at_once", "exit status 3", 3}}) {
    const Result result = judged_by(workshop, against(workshop, "chunked_tail", reference, only));
    EXPECT_EQ(result.verdict, Verdict::mistrusted) << reference;
    EXPECT_NE(result.reasons.front().find(fact), std::string::npos) << result.reasons.front();
    EXPECT_EQ(result.reference->verdict, "FAILED");
    for (const PropertyResult& p : result.properties) EXPECT_EQ(p.verdict, "PASSED") << p.name;
    std::int64_t run = 0;
    for (const PropertyResult& p : result.reference->properties) run += p.cases;
    EXPECT_EQ(run, cases) << reference;
    EXPECT_LT(result.seconds, 60) << reference;
    for (int i = 0; i < 100 && descendants(workshop.pid()) > before; ++i) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(descendants(workshop.pid()), before) << reference;
  }
}

}  // namespace
}  // namespace fractus
