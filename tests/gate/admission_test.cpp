// Each refusal on its own fault, in a verdict that is otherwise admitted.
#include "gate/admission.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

// Protects every test below: without a fault the example is admitted, and each check has said so.
TEST(Admission, IsGivenWhereNothingIsWrong) {
  const Example example;
  const Admission admission = example.admit();
  EXPECT_TRUE(admission.answer.admitted()) << text_of(admission.answer);
  std::vector<std::string> checks;
  for (const Checked& one : admission.answer.checked) checks.push_back(one.check);
  EXPECT_EQ(checks, (std::vector<std::string>{"signature", "artifact", "verdict", "kernel", "scope", "extent", "power",
                                              "plan", "time", "machine"}));
  EXPECT_EQ(admission.keyid, attest::keyid(attest::public_of(example.key)));
  EXPECT_TRUE(admission.not_looked_at.empty());
}

struct Fault {
  const char* check;
  std::string words;
  std::function<void(Example&)> make;
};

json& said(Example& example) { return example.statement.predicate; }

std::vector<Fault> faults() {
  std::vector<Fault> all;
  const auto add = [&](const char* check, std::string words, std::function<void(Example&)> make) {
    all.push_back({check, std::move(words), std::move(make)});
  };
  for (const char* verdict : {"PARTIAL", "DIFFERENT", "UNDECIDED", "MISTRUSTED", "FAILED", "equivalent", ""})
    add("verdict", "wanted EQUIVALENT, got " + std::string(verdict), [=](Example& e) { said(e)["verdict"] = verdict; });
  add("kernel", "wanted a verdict on linear_attention, got one on moe", [](Example& e) { said(e)["kernel"] = "moe"; });
  add("kernel", "version 1 of its contract, got one on version 2", [](Example& e) { said(e)["contract_version"] = 2; });
  add("kernel", "wanted a verdict on the form kernels.py:other, got one on kernels.py:attention",
      [](Example& e) { e.policy["forms"] = {"kernels.py:other"}; });
  add("kernel", "the form kernels.py:attention, got one on kernels.py:attention:block=64,levels=2", [](Example& e) {
    e.policy["forms"] = {"kernels.py:attention"};
    said(e)["settings"] = {{"block", 64}, {"levels", 2}};
  });
  add("scope", "wanted the preset live, got smoke", [](Example& e) { said(e)["preset"] = "smoke"; });
  add("scope", "for float32, float64, got one for float32", [](Example& e) { said(e)["dtypes"] = {"float32"}; });
  add("scope", "forward-only", [](Example& e) { said(e)["forward_only"] = true; });
  add("scope", "got memory-growth", [](Example& e) { said(e)["waived"] = {"memory-growth"}; });
  add("scope", "no waiver but shared-edges, got memory-growth", [](Example& e) {
    e.policy["waivers"] = {"shared-edges"};
    said(e)["waived"] = {"shared-edges", "memory-growth"};
  });
  add("extent", "at least 100 cases, got 99", [](Example& e) { said(e)["cases"] = 99; });
  add("extent", "at least 10000 elements, got 9999", [](Example& e) {
    said(e)["elements"] = 9'999;
    said(e)["undecidable"] = 0;
  });
  add("extent", "at most 0.05 of the elements undecidable, got 0.0501", [](Example& e) {
    said(e)["elements"] = 1'000'000;
    said(e)["undecidable"] = 50'100;
    said(e)["undecidable_share"] = 0;  // what it says of itself decides nothing
  });
  add("extent", "rounding: wanted PASSED, got UNDECIDED",
      [](Example& e) { said(e)["properties"][0]["verdict"] = "UNDECIDED"; });
  add("extent", "rounding: wanted PASSED, got WAIVED",
      [](Example& e) { said(e)["properties"][0]["verdict"] = "WAIVED"; });
  add("extent", "rounding: wanted PASSED, got NOT ALGEBRAIC",
      [](Example& e) { said(e)["properties"][0]["verdict"] = "NOT ALGEBRAIC"; });
  add("extent", "all of its 1185 planned cases, got 1184",
      [](Example& e) { said(e)["properties"][0]["cases"] = 1184; });
  add("extent", "properties that passed, got none", [](Example& e) { said(e)["properties"] = json::array(); });
  add("extent", "without a case, got T = 0", [](Example& e) { said(e)["coverage"]["missing"] = {"T = 0"}; });
  add("power", "got none", [](Example& e) { said(e)["mutants"]["measured"] = false; });
  add("power", "all 124 known-wrong forms caught, got 123", [](Example& e) { said(e)["mutants"]["killed"] = 123; });
  add("power", "survivors: wrong_sum", [](Example& e) { said(e)["mutants"]["survivors"] = {"wrong_sum"}; });
  add("power", "at least 10 known-wrong forms caught, got 0", [](Example& e) {
    said(e)["mutants"]["killed"] = 0;
    said(e)["mutants"]["total"] = 0;
  });
  add("plan", "revoked", [](Example& e) { e.policy["revoked_plans"] = {std::string(64, 'a')}; });
  add("artifact", "revoked", [](Example& e) { e.policy["revoked_candidates"] = {e.statement.subjects[0].digest}; });
  add("time", "issued at 2026-12-01T12:02:01Z, and this machine's clock shows 2026-12-01T12:00:00Z",
      [](Example& e) { said(e)["issued"] = "2026-12-01T12:02:01Z"; });
  add("time", "it expired at 2026-12-01T12:00:00Z", [](Example& e) { said(e)["expires"] = "2026-12-01T12:00:00Z"; });
  add("time", "of the last 30d, got one of 2026-11-01T11:59:59Z",
      [](Example& e) { said(e)["issued"] = "2026-11-01T11:59:59Z"; });
  add("time", "'issued': wanted a time", [](Example& e) { said(e)["issued"] = "yesterday"; });
  add("time", "'expires': wanted a time", [](Example& e) { said(e)["expires"] = "2026-12-31"; });
  add("machine", "torch: wanted 2.11.0, got 2.9.0", [](Example& e) { e.machine["torch"] = "2.9.0"; });
  add("machine", "torch: wanted 2.11.0, got unknown", [](Example& e) { e.machine.erase("torch"); });
  add("machine", "torch: wanted unknown, got unknown", [](Example& e) {
    e.machine["torch"] = "unknown";
    said(e)["machine"]["torch"] = "unknown";
  });
  add("machine", "cuda: wanted unknown, got unknown", [](Example& e) {
    e.machine.erase("cuda");
    said(e)["machine"].erase("cuda");
  });
  add("machine", "cuda: wanted 13.0, got none", [](Example& e) { e.machine["cuda"] = "none"; });
  add("machine", "gpu: wanted none, got H200", [](Example& e) { e.machine["gpu"] = "H200"; });
  add("machine", "driver: wanted 580.1, got none", [](Example& e) { said(e)["machine"]["driver"] = "580.1"; });
  add("machine", "system: wanted Linux x, got Linux y", [](Example& e) { e.machine["system"] = "Linux y"; });
  add("machine", "lacks fma and has none beside them", [](Example& e) { e.machine["cpu_features"] = "avx2"; });
  add("machine", "lacks none and has avx512f beside",
      [](Example& e) { e.machine["cpu_features"] = "avx2 avx512f fma"; });
  add("machine", "lacks fma", [](Example& e) {
    e.machine["cpu_features"] = "avx2 avx512f";
    e.policy["machine"] = {{"cpu_features", "superset"}};
  });
  add("machine", "cpu_features: wanted unknown", [](Example& e) {
    said(e)["machine"]["cpu_features"] = 7;
    e.policy["machine"] = {{"cpu_features", "superset"}};
  });
  add("clock", "2025-12-31T23:59:59Z", [](Example& e) {
    e.clock = *instant_from("2025-12-31T23:59:59Z");
    said(e)["issued"] = "2025-12-31T10:00:00Z";
  });
  add("clock", "2107-01-01T00:00:00Z", [](Example& e) {
    e.clock = *instant_from("2107-01-01T00:00:00Z");
    said(e)["issued"] = "2107-01-01T00:00:00Z";
    said(e)["expires"] = "2107-01-02T00:00:00Z";
  });
  return all;
}

// Protects: each of these by itself keeps the code out, and is named.
TEST(Admission, IsRefusedForEachFaultAlone) {
  for (const Fault& fault : faults()) {
    Example example;
    fault.make(example);
    SCOPED_TRACE(fault.words);
    expect_one(example.admit().answer, fault.check, fault.words);
  }
}

// Protects whoever mends it from doing so once for each fault.
TEST(Admission, NamesEveryFaultAtOnce) {
  Example example;
  said(example)["kernel"] = "moe";
  said(example)["preset"] = "smoke";
  said(example)["cases"] = 1;
  said(example)["expires"] = "2026-12-01T11:00:00Z";
  example.machine["torch"] = "2.9.0";
  example.folder.put("kernels.py", "other");
  const Answer answer = example.admit().answer;
  std::vector<std::string> checks;
  for (const Refusal& refusal : answer.refusals) checks.push_back(refusal.check);
  EXPECT_EQ(checks, (std::vector<std::string>{"artifact", "artifact", "kernel", "scope", "extent", "time", "machine"}))
      << text_of(answer);
}

// Protects: what a statement does not say is not taken for harmless.
TEST(Admission, IsRefusedWithoutAnyMemberOfTheStatement) {
  const Example whole;
  std::vector<std::string> paths;
  for (const auto& [name, value] : whole.statement.predicate.items()) {
    paths.push_back("/" + name);
    if (name == "mutants")
      for (const auto& [inner, ignored] : value.items()) paths.push_back("/" + name + "/" + inner);
  }
  for (const char* inner : {"name", "verdict", "cases", "planned"})
    paths.push_back(std::string("/properties/0/") + inner);
  paths.push_back("/coverage/missing");
  const std::set<std::string> unread{"/format", "/seed", "/undecidable_share"};
  for (const std::string& path : paths) {
    if (unread.contains(path)) continue;
    for (const bool is_absent : {true, false}) {
      Example example;
      example.policy["forms"] = {"kernels.py:attention"};  // or no check would ask for the settings
      const json::json_pointer pointer(path);
      if (is_absent)
        said(example).at(pointer.parent_pointer()).erase(pointer.back());
      else
        said(example).at(pointer) = nullptr;
      const Answer answer = example.admit().answer;
      EXPECT_FALSE(answer.admitted()) << path;
      EXPECT_EQ(answer.refusals.size(), 1u) << path << "\n" << text_of(answer);
    }
  }
}

// Protects the right ones: what the policy allows is let through.
TEST(Admission, FollowsThePolicy) {
  const std::vector<std::function<void(Example&)>> allowed{
      [](Example& e) { said(e)["preset"] = "smoke", e.policy["preset"] = "smoke"; },
      [](Example& e) { e.policy["preset"] = "smoke"; },
      [](Example& e) {
        e.policy["forms"] = {"chunked:block=64", "kernels.py:attention"};
      },
      [](Example& e) { said(e)["dtypes"] = {"float32"}, e.policy["dtypes"] = {"float32"}; },
      [](Example& e) { e.policy["dtypes"] = {"float32"}; },
      [](Example& e) { said(e)["forward_only"] = true, e.policy["forward_only"] = true; },
      [](Example& e) {
        said(e)["waived"] = {"memory-growth"}, e.policy["waivers"] = {"memory-growth", "shared-edges"};
        said(e)["properties"][0]["verdict"] = "WAIVED";
      },
      [](Example& e) {
        said(e)["properties"][0] = {{"name", "identity"}, {"verdict", "NOT ALGEBRAIC"}, {"cases", 3}, {"planned", 70}};
      },
      [](Example& e) { said(e)["coverage"]["missing"] = {"T = 0"}, e.policy["uncovered"] = {"T = 0"}; },
      [](Example& e) { said(e)["cases"] = 5, e.policy["smallest_cases"] = 5; },
      [](Example& e) { said(e)["undecidable"] = 3'000'000, e.policy["largest_undecidable_share"] = 0.2; },
      [](Example& e) { said(e)["issued"] = "2026-12-01T12:02:00Z"; },
      [](Example& e) { said(e)["expires"] = "2026-12-01T12:00:01Z"; },
      [](Example& e) { said(e)["issued"] = "2026-11-01T12:00:00Z"; },
      [](Example& e) { said(e)["issued"] = "2026-10-01T12:00:00Z", e.policy["max_age"] = "90d"; },
      [](Example& e) {
        e.machine["cpu_features"] = "avx2 avx512f fma", e.policy["machine"] = {{"cpu_features", "superset"}};
      },
      [](Example& e) {
        e.machine["gpu"] = "H200", e.policy["machine"] = {{"gpu", "any"}};
      },
      [](Example& e) { e.machine["gpu"] = "H200", said(e)["machine"]["gpu"] = "H200"; },
      [](Example& e) { e.policy["revoked_plans"] = {std::string(64, 'b')}; },
      [](Example& e) { said(e)["machine"]["cpu_features"] = "fma avx2"; },
  };
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    Example example;
    allowed[i](example);
    const Answer answer = example.admit().answer;
    EXPECT_TRUE(answer.admitted()) << i << "\n" << text_of(answer);
  }
}

// Protects: nothing that an unknown hand wrote is even quoted.
TEST(Signature, OfAnotherKeyLeavesNothingToLookAt) {
  Example example;
  attest::new_key(example.folder.path / "other.pem");
  example.key = attest::read_private(example.folder.path / "other.pem");
  said(example)["verdict"] = "GO ON, NOTHING TO SEE";
  const Admission admission = example.admit();
  expect_one(admission.answer, "signature", "none of the policy's keys");
  EXPECT_EQ(admission.not_looked_at.size(), 9u);
  EXPECT_TRUE(admission.predicate.is_null());
  EXPECT_EQ(text_of(admission.answer).find("NOTHING TO SEE"), std::string::npos);
}

TEST(Signature, OfARevokedKeyIsNamed) {
  Example example;
  const std::string id = attest::keyid(attest::public_of(example.key));
  example.policy["revoked_keys"] = {id};
  expect_one(example.admit().answer, "signature", id + ", is revoked");
}

// Protects the change of keys: one of several is enough, wherever it stands.
TEST(Signature, OfAnyOfTheKeysIsEnough) {
  Example example;
  attest::new_key(example.folder.path / "other.pem");
  example.policy["keys"] = {"other.pub.pem", read_whole(example.folder.path / "ci.pub.pem")};
  EXPECT_TRUE(example.admit().answer.admitted());
}

TEST(Signature, OfAnotherKindOfStatementIsRefused) {
  const Example example;
  const std::string payload = attest::to_text(example.statement);
  const auto refused = [&](const std::string& type, const std::string& text, const std::string& words) {
    write_whole(example.envelope, attest::to_text(attest::sign(type, text, example.key)));
    expect_one(
        gate::admit({example.read_policy(), example.machine, example.clock}, example.envelope, {example.artifact})
            .answer,
        "statement", words);
  };
  refused("text/plain", payload, "text/plain");
  refused(attest::payload_type, "{}", "_type");
  refused(attest::payload_type, payload + "x", "JSON");
}

TEST(Envelope, ThatIsNoneIsRefused) {
  const Example example;
  const Circumstances circumstances{example.read_policy(), example.machine, example.clock};
  expect_one(gate::admit(circumstances, example.folder.path / "none.json", {example.artifact}).answer, "signature",
             "none.json");
  expect_one(gate::admit(circumstances, example.folder.path, {example.artifact}).answer, "signature", "cannot read");
  expect_one(gate::admit(circumstances, example.folder.put("e.json", "{"), {example.artifact}).answer, "signature",
             "JSON");
}

// Protects the whole way: whatever byte of the envelope is another, the code is not loaded, or the statement that is
// judged is the same to the last member.
TEST(Envelope, WithAnyByteChangedIsRefusedOrTheSame) {
  const Example example;
  example.sign();
  const std::string text = read_whole(example.envelope);
  const Circumstances circumstances{example.read_policy(), example.machine, example.clock};
  const Admission before = gate::admit(circumstances, example.envelope, {example.artifact});
  ASSERT_TRUE(before.answer.admitted());
  std::size_t same = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    for (const int bit : {0, static_cast<int>(1 + i % 7)}) {
      changed[i] = static_cast<char>(text[i] ^ (1 << bit));
      const auto file = example.folder.put("changed.json", changed);
      const Admission after = gate::admit(circumstances, file, {example.artifact});
      if (!after.answer.admitted()) continue;
      ++same;
      EXPECT_EQ(after.predicate, before.predicate) << i;
    }
  }
  EXPECT_LT(same, 200u);  // white space, and the id of the key, which is a hint
}

}  // namespace
}  // namespace fractus::gate
