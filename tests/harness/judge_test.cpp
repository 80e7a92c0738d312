// Verdicts: what the whole way from a plan to a result says of right forms, of wrong ones, and of plans that see too
// little. Every property has a negative control here: a known fault that it, by itself, catches.
#include "harness/judge.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/fixture.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

std::filesystem::path scratch() {
  return std::filesystem::temp_directory_path() / ("fractus-judge-" + std::to_string(getpid()));
}

Plan plan_of(const std::string& candidate, const std::vector<std::string>& only = {},
             std::vector<DType> dtypes = {DType::float32, DType::float64}) {
  const Workshop& workshop = real_workshop();
  return make_plan({.driver = &driver(),
                    .candidate = *workshop.find_form("linear_attention", candidate),
                    .preset = "smoke",
                    .seed = 3,
                    .dtypes = std::move(dtypes),
                    .only = only},
                   workshop.forms());
}

Result judged(const Plan& plan, bool partial = false, std::vector<std::string> waived = {}) {
  JudgeSettings settings;
  settings.partial = partial;
  settings.waived = std::move(waived);
  settings.fixtures = scratch();
  return judge(real_workshop(), driver(), plan, settings);
}

const PropertyResult& of(const Result& result, const std::string& name) {
  return *std::find_if(result.properties.begin(), result.properties.end(),
                       [&](const PropertyResult& p) { return p.name == name; });
}

// Protects: the main job. A right form is EQUIVALENT, by a plan that catches every known-wrong form.
TEST(Judge, AcceptsARightForm) {
  const Result result = judged(plan_of("chunked_tail"));
  EXPECT_EQ(result.verdict, Verdict::equivalent) << (result.reasons.empty() ? "" : result.reasons.front());
  EXPECT_TRUE(result.power_measured);
  EXPECT_GE(result.kills.size(), 15u);
  for (const Kill& kill : result.kills) EXPECT_TRUE(kill.killed) << kill.form;
  EXPECT_TRUE(result.coverage.missing().empty());
}

struct Control {
  const char* property;
  const char* form;
  const char* kind;
};

class NegativeControl : public testing::TestWithParam<Control> {};

// Protects: each check can fail. The property alone, without the others, catches a fault of its kind, shrinks it to a
// few tokens, and the file that it leaves shows the same again.
TEST_P(NegativeControl, IsCaughtByItsProperty) {
  const Control control = GetParam();
  const Result result = judged(plan_of(control.form, {control.property}), true);
  ASSERT_TRUE(result.verdict == Verdict::different || result.verdict == Verdict::failed) << name(result.verdict);
  const PropertyResult& property = of(result, control.property);
  ASSERT_TRUE(property.finding);
  EXPECT_EQ(property.finding->kind, control.kind) << property.finding->text;
  ASSERT_TRUE(property.witness);
  if (property.name == std::string("memory")) return;  // its shapes are the point; it needs their length
  EXPECT_LE(property.witness->smallest.dims.at("T"), 4);

  const Fixture fixture = read_fixture(property.witness->fixture);
  Attached fresh(real_workshop(), *real_workshop().find_form("linear_attention", control.form), fixture.settings);
  const auto again = replayed(driver(), fixture, fresh);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->kind, property.finding->kind);
  EXPECT_EQ(again->tensor, property.finding->tensor);
}

INSTANTIATE_TEST_SUITE_P(Properties, NegativeControl,
                         testing::Values(Control{"contract", "wrong_k_assumed_contiguous", "value"},
                                         Control{"contract", "wrong_S0_modified", "modified-input"},
                                         Control{"contract", "wrong_second_backward_adds_up", "second-backward"},
                                         Control{"exact", "wrong_rerun_differs", "bits"},
                                         Control{"choices", "wrong_cut_at_1e_8", "value"},
                                         Control{"choices", "wrong_epsilon_dropped", "value"},
                                         Control{"choices", "wrong_gradient_through_the_cut", "value"},
                                         Control{"repeat", "wrong_with_two_threads", "value"},
                                         Control{"repeat", "wrong_rerun_differs", "not-repeated"},
                                         Control{"rounding", "wrong_state_bfloat16", "value"},
                                         Control{"gradients", "wrong_dk_lacks_denominator", "value"},
                                         Control{"gradients", "wrong_S_cotangent_ignored", "value"},
                                         Control{"carry", "wrong_tail_lost_from_state", "value"},
                                         Control{"carry", "wrong_z0_detached", "value"},
                                         Control{"memory", "wrong_memory_understated", "memory"},
                                         Control{"rounding", "wrong_throws_at_one_token", "raised"},
                                         Control{"exact", "wrong_crashes_at_prime_groups", "crashed"}),
                         [](const auto& info) { return std::string(info.param.property) + "_" + info.param.form; });

// Protects: property 11. The same candidate under a plan that lost its gradients is not trusted: wrong forms survive
// it.
TEST(Judge, MistrustsAPlanThatSeesTooLittle) {
  Plan plan = plan_of("chunked_tail");
  std::erase_if(plan.cases, [](const Case& c) { return !c.cotangents.empty(); });
  const Result result = judged(plan);
  EXPECT_EQ(result.verdict, Verdict::mistrusted);
  const auto survived = [&](const std::string& form) {
    return std::any_of(result.kills.begin(), result.kills.end(),
                       [&](const Kill& kill) { return kill.form == form && !kill.killed; });
  };
  EXPECT_TRUE(survived("wrong_dk_lacks_denominator"));
  EXPECT_FALSE(result.coverage.missing().empty());
}

// Protects: no verdict rests on a reference that is wrong itself.
TEST(Judge, MistrustsABrokenReference) {
  Plan plan = plan_of("chunked_tail", {}, {DType::float32});
  std::erase_if(plan.cases, [](const Case& c) { return c.property != "rounding"; });
  plan.known_good.emplace_back("wrong_scores_scaled");
  plan.known_wrong.clear();
  EXPECT_EQ(judged(plan).verdict, Verdict::mistrusted);
}

// Protects: EQUIVALENT means the whole plan. A part of it, or a spent budget, is UNDECIDED.
TEST(Judge, IsUndecidedOnAPart) {
  EXPECT_EQ(judged(plan_of("chunked_tail", {"exact"}), true).verdict, Verdict::undecided);
  JudgeSettings settings;
  settings.budget = std::chrono::duration<double>(0.2);
  settings.fixtures = scratch();
  const Result result = judge(real_workshop(), driver(), plan_of("chunked_tail"), settings);
  EXPECT_EQ(result.verdict, Verdict::undecided);
  EXPECT_FALSE(result.power_measured);
}

// Protects: a waiver lets exactly its clause pass, and the result says so.
TEST(Judge, WaivesWhatWasWaivedAndNoMore) {
  const Plan plan = plan_of("wrong_second_backward_throws", {"contract"});
  EXPECT_EQ(judged(plan, true).verdict, Verdict::failed);
  const Result waived = judged(plan, true, {"single-backward"});
  EXPECT_EQ(waived.verdict, Verdict::undecided);  // nothing wrong in this part
  EXPECT_EQ(of(waived, "contract").verdict, "WAIVED");
  EXPECT_GT(of(waived, "contract").waived.at("single-backward"), 0);
  EXPECT_EQ(judged(plan_of("wrong_scores_scaled", {"contract"}), true, {"single-backward", "shared-edges"}).verdict,
            Verdict::different);

  const Plan edges = plan_of("wrong_divided_inside_where", {"gradients"});
  EXPECT_EQ(judged(edges, true).verdict, Verdict::different);
  EXPECT_EQ(judged(edges, true, {"shared-edges"}).verdict, Verdict::undecided);
}

// Protects: what the known-wrong forms are for. Each is caught by the property that its file names: a fault that shows
// elsewhere is another one than was meant.
TEST(Judge, CatchesEachWrongFormWhereItIsMeantToShow) {
  const Result result = judged(plan_of("chunked"));
  ASSERT_EQ(result.verdict, Verdict::equivalent) << (result.reasons.empty() ? "" : result.reasons.front());
  EXPECT_GT(result.kills.size(), 100u);
  for (const Kill& kill : result.kills)
    EXPECT_TRUE(real_workshop().find_form("linear_attention", kill.form)->shown_by.starts_with(kill.property))
        << kill.form;
}

// Protects: a large block is answered for at once, and not with trust.
TEST(Judge, TrustsNoBlockThatNoSequenceFills) {
  const Result result = judged(make_plan({.driver = &driver(),
                                          .candidate = *real_workshop().find_form("linear_attention", "chunked"),
                                          .settings = {{"block", 512}}},
                                         real_workshop().forms()));
  EXPECT_EQ(result.verdict, Verdict::mistrusted);
  EXPECT_LT(result.seconds, 2);
  ASSERT_FALSE(result.reasons.empty());
  EXPECT_NE(result.reasons.front().find("block of 512"), std::string::npos) << result.reasons.front();
}

// Protects: a waiver is of use. The plan still sees every known-wrong form, by the waived cases too, so the rest of the
// contract can end EQUIVALENT.
TEST(Judge, WaivedFormsCanBeEquivalent) {
  const Result result = judged(plan_of("wrong_second_backward_throws"), false, {"single-backward"});
  EXPECT_EQ(result.verdict, Verdict::equivalent) << (result.reasons.empty() ? "" : result.reasons.front());
}

// A form of the test worker, by some properties alone.
Result judged_in_part(const std::string& candidate, const std::vector<std::string>& only) {
  const Workshop workshop(test_worker());
  std::vector<FormInfo> forms = workshop.forms();
  std::erase_if(forms, [](const FormInfo& form) { return form.role == "wrong"; });
  const Plan plan = make_plan({.driver = &driver(),
                               .candidate = *workshop.find_form("linear_attention", candidate),
                               .preset = "smoke",
                               .seed = 3,
                               .only = only},
                              forms);
  JudgeSettings settings;
  settings.partial = true;
  settings.fixtures = scratch();
  return judge(workshop, driver(), plan, settings);
}

// Protects: a right form whose backward computes den anew, and takes the other branch than y where that is in doubt.
// One that does not cut its gradients where nothing is in doubt is refused.
TEST(Judge, LetsABackwardComputeDenAnew) {
  const Result right = judged_in_part("test_den_anew", {"choices", "gradients", "carry"});
  for (const PropertyResult& property : right.properties)
    EXPECT_EQ(property.verdict, "PASSED") << property.name << ": " << (property.finding ? property.finding->text : "");
  const Result wrong = judged_in_part("test_den_anew_uncut", {"choices", "gradients", "carry"});
  ASSERT_TRUE(of(wrong, "choices").finding);
  EXPECT_EQ(of(wrong, "choices").finding->kind, "value");
  EXPECT_EQ(of(wrong, "choices").finding->tensor.front(), 'd') << "a gradient";
}

// Protects: the second, tighter line. A form inside its bound but far coarser than every known-good one is set apart.
TEST(Judge, QuarantinesACoarseForm) {
  const Result result = judged_in_part("test_coarse", {"rounding", "gradients"});
  EXPECT_EQ(result.verdict, Verdict::undecided) << (result.reasons.empty() ? "" : result.reasons.front());
  const std::string reasons = of(result, "rounding").reason + of(result, "gradients").reason;
  EXPECT_NE(reasons.find("quarantined: S T 128-255"), std::string::npos) << reasons;
}

// Protects: a candidate's verdict from its neighbours. A new, unproven candidate sets no line; references and admitted
// forms do, the candidate itself does not.
TEST(Plan, TakesItsMeasureFromAdmittedForms) {
  std::vector<FormInfo> forms = real_workshop().forms();
  FormInfo unproven = *real_workshop().find_form("linear_attention", "chunked");
  unproven.name = "unproven";
  forms.push_back(unproven);
  const Plan plan =
      make_plan({.driver = &driver(), .candidate = *real_workshop().find_form("linear_attention", "chunked")}, forms);
  std::vector<std::string> measure = plan.known_good;
  std::sort(measure.begin(), measure.end());
  EXPECT_EQ(measure, (std::vector<std::string>{"chunked_tail", "cumsum", "einsum", "looped"}));
}

// Protects: replay. The same request gives the same plan, another seed or candidate another one.
TEST(Plan, FollowsFromItsRequest) {
  EXPECT_EQ(plan_of("chunked").hash, plan_of("chunked").hash);
  EXPECT_NE(plan_of("chunked").hash, plan_of("cumsum").hash);
  EXPECT_NE(plan_of("chunked").hash, plan_of("chunked", {}, {DType::float32}).hash);
  EXPECT_EQ(sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2, appendix B
}

}  // namespace
}  // namespace fractus
