// The escalation is taken one step at a time, each on a proof of its own.
#include "gate/ladder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

// A folder with an envelope and an artifact for each step, all admitted by the example's policy.
struct Escalation {
  Example example;
  json state{{"format", ladder_format}, {"steps", json::array()}};

  explicit Escalation(std::size_t steps = std::size(ladder)) {
    example.policy["kernels"] = {{"linear_attention", 1}, {"cross_entropy", 1}, {"block_core", 1}};
    for (std::size_t i = 0; i < steps; ++i) {
      prove(ladder[i].step, ladder[i].kernel == nullptr ? "linear_attention" : ladder[i].kernel);
      state["steps"].push_back({{"step", ladder[i].step},
                                {"done", i + 1 < steps},
                                {"proofs",
                                 {{{"envelope", std::string(ladder[i].step) + ".dsse.json"},
                                   {"artifacts", {std::string(ladder[i].step) + "/kernels.py"}}}}}});
    }
  }
  void prove(const std::string& step, const std::string& kernel) {
    attest::Statement statement = example.statement;
    statement.predicate["kernel"] = kernel;
    const auto bytes = example.folder.put(step + "/kernels.py", "# " + step + "\n");
    statement.subjects = {{"src/kernels.py", "sha256", attest::sha256_of(bytes)}};
    example.folder.put(step + ".dsse.json", attest::signed_text(statement, example.key));
  }
  json& step(std::size_t i) { return state["steps"][i]; }
  Answer answer() const {
    const Policy policy = example.read_policy();
    return check_ladder(example.folder.put("STATE.json", state.dump()),
                        [&](const auto& envelope, const auto& artifacts) {
                          return admit({policy, example.machine, example.clock}, envelope, artifacts);
                        });
  }
};

void expect_in(const std::string& words, const std::string& text) {
  EXPECT_NE(text.find(words), std::string::npos) << "wanted: " << words << "\ngot: " << text;
}

// Protects: the right escalation passes, at each of its steps.
TEST(Ladder, AdmitsEachStepInOrder) {
  for (std::size_t steps = 1; steps <= std::size(ladder); ++steps)
    EXPECT_TRUE(Escalation(steps).answer().admitted()) << steps << text_of(Escalation(steps).answer());
}

// Protects: a step that is skipped, repeated, out of order, unknown, or taken before the one under it is done.
TEST(Ladder, RefusesAnotherOrder) {
  Escalation skipped(4);
  skipped.state["steps"].erase(1);
  const Answer answer = skipped.answer();
  EXPECT_EQ(answer.refusals.size(), 2u);  // both steps behind the gap
  expect_in("step 2: \"chunked-attention\" is too early, and ce-chunk-2048 is to be taken there", text_of(answer));

  Escalation repeated(2);
  repeated.step(1)["step"] = "code-swap";
  expect_in("\"code-swap\" is there twice", text_of(repeated.answer()));

  Escalation swapped(3);
  std::swap(swapped.step(1), swapped.step(2));
  swapped.step(1)["done"] = swapped.step(2)["done"] = true;
  EXPECT_EQ(swapped.answer().refusals.size(), 2u);
  expect_in("\"ce-chunk-2048\" is out of order", text_of(swapped.answer()));

  Escalation unknown(2);
  unknown.step(1)["step"] = "ce-chunk-4096";
  expect_in("no step of the escalation", text_of(unknown.answer()));

  Escalation beyond;
  beyond.state["steps"].push_back(beyond.step(0));
  EXPECT_FALSE(beyond.answer().admitted());

  Escalation undone(3);
  undone.step(0)["done"] = false;
  expect_one(undone.answer(), "ladder", "\"code-swap\" is not done, and \"ce-chunk-2048\" is to be taken after it");
}

// Protects: an envelope that the gate would refuse, under any step, refuses the ladder; so does one that serves twice
// or is about another kernel than the step's.
TEST(Ladder, RefusesStepsWithoutTheirOwnProof) {
  Escalation changed(3);
  changed.example.folder.put("code-swap/kernels.py", "# another\n");
  EXPECT_FALSE(changed.answer().admitted());
  expect_in("step \"code-swap\", envelope", text_of(changed.answer()));

  Escalation different(2);
  different.example.statement.predicate["verdict"] = "DIFFERENT";
  different.prove("ce-chunk-2048", "cross_entropy");
  expect_in("DIFFERENT", text_of(different.answer()));

  Escalation absent(2);
  absent.step(1)["proofs"][0]["envelope"] = "absent.json";
  EXPECT_FALSE(absent.answer().admitted());

  Escalation of_another_kernel(2);
  of_another_kernel.prove("ce-chunk-2048", "linear_attention");
  expect_one(of_another_kernel.answer(), "ladder", "none of its envelopes is about cross_entropy");

  Escalation shared(3);
  shared.step(2)["proofs"] = shared.step(0)["proofs"];
  expect_one(shared.answer(), "ladder", "the same form stands under step \"code-swap\" already");

  // Signed a second time it is the same form still.
  Escalation again(3);
  std::filesystem::copy_file(again.example.folder.path / "code-swap/kernels.py",
                             again.example.folder.path / "chunked-attention/kernels.py",
                             std::filesystem::copy_options::overwrite_existing);
  again.example.statement.subjects = {
      {"src/kernels.py", "sha256", attest::sha256_of(again.example.folder.path / "code-swap/kernels.py")}};
  again.example.statement.predicate["issued"] = "2026-12-01T11:00:00Z";
  again.example.folder.put("chunked-attention.dsse.json",
                           attest::signed_text(again.example.statement, again.example.key));
  expect_one(again.answer(), "ladder", "the same form");

  Escalation nothing(1);
  const Answer answer = check_ladder(nothing.example.folder.put("STATE.json", nothing.state.dump()),
                                     [](const auto&, const auto&) { return Admission{}; });
  expect_one(answer, "ladder", "nothing in it was checked");
}

// Protects: a slip in the state is named, and never means that less is asked.
TEST(Ladder, RefusesAMalformedState) {
  const auto fault = [](auto edit) {
    Escalation escalation(2);
    edit(escalation.state);
    return escalation.answer();
  };
  expect_one(fault([](json& s) { s["format"] = "x"; }), "ladder", "format is not");
  expect_one(fault([](json& s) { s["step"] = 1; }), "ladder", "unknown member \"step\"");
  expect_one(fault([](json& s) { s["steps"] = json::array(); }), "ladder", "no list of 1 to");
  expect_one(fault([](json& s) { s["steps"][0].erase("done"); }), "ladder", "has no 'done'");
  expect_one(fault([](json& s) { s["steps"][0]["done"] = 1; }), "ladder", "neither true nor false");
  expect_one(fault([](json& s) { s["steps"][0]["proofs"] = json::array(); }), "ladder", "no list of 1 to");
  expect_one(fault([](json& s) { s["steps"][0]["proofs"][0]["artifacts"] = json::array(); }), "ladder",
             "no list of 1 to");
  expect_one(fault([](json& s) { s["steps"][0]["proofs"][0]["envelope"] = ""; }), "ladder", "is no path");
  expect_one(fault([](json& s) { s["steps"][0]["proofs"][0]["artefacts"] = 1; }), "ladder", "unknown member");
  const std::string whole = Escalation(2).state.dump();
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(steps_from(whole.substr(0, length), "s", "."), std::runtime_error) << length;
  EXPECT_TRUE(rc::check("bytes", [&] {
    std::string text = whole;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i)
      text[*rc::gen::inRange<std::size_t>(0, text.size())] = *rc::gen::arbitrary<char>();
    try {
      RC_ASSERT(!steps_from(text, "s", ".").empty());
    } catch (const std::runtime_error& error) {
      RC_ASSERT(std::string(error.what()).starts_with("s"));
    }
  }));
}

}  // namespace
}  // namespace fractus::gate
