// A result read back from its JSON form: the same result, or an error that names what is wrong.
#include "reports/read.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "reports/verdict.h"
#include "tests/oracle/property.h"
#include "tests/reports/example.h"

namespace fractus {
namespace {

using nlohmann::json;

Result concluded() {
  Result result = any_result();
  conclude(result);
  return result;
}

// With a finding, a reference and whatever else may be absent.
Result full() {
  return sampled([] {
    Result drawn = concluded();
    drawn.recomputes = "looped";
    drawn.machine = {{"cpu", "some cpu"}};
    drawn.properties[0].finding = Finding{.kind = "value", .tensor = "y", .text = "off", .index = {1}};
    drawn.properties[0].witness = Witness{.found = example_case("contract"), .smallest = example_case("contract")};
    drawn.properties[0].held = {{"forward", "T", 5, 6, 7}};
    drawn.properties[0].worst_ratio = {{"float32 y", 0.5}};
    drawn.properties[0].histogram["float32 y"].add(0.5);
    drawn.properties[0].algebra = "it differs";
    drawn.properties[0].not_algebraic = Remark{.kind = "branch"};
    drawn.audit = {{.kind = "cast"}};
    drawn.waived = {"shared-edges"};
    drawn.properties[0].waived = {{"shared-edges", 1}};
    drawn.shared_edges = {{"einsum", "somewhere"}};
    drawn.reference = Reference{.name = "looped", .properties = drawn.properties};
    conclude(drawn);
    return drawn;
  });
}

std::string error_of(const json& given) {
  try {
    result_from(given);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// Protects every view of a stored result: nothing is lost between a run and its file, for any result.
TEST(Read, EveryMemberComesBack) {
  EXPECT_TRUE(holds(100, [] {
    const json written = to_json(concluded());
    const Result back = result_from_text(written.dump(1), "result.json");
    RC_ASSERT(to_json(back) == written);
  }));
}

// Protects: a verdict rests on nothing that is not in the file.
TEST(Read, AResultIsConcludedFromItsFile) {
  EXPECT_TRUE(holds(100, [] {
    const json written = to_json(concluded());
    Result back = result_from(written);
    back.verdict = Verdict::equivalent;
    back.reasons = {"forged"};
    for (PropertyResult& p : back.properties) p.verdict = "PASSED", p.reason = "forged";
    conclude(back);
    RC_ASSERT(to_json(back) == written);
  }));
}

// Every way to a member, through objects and the first elements of arrays.
void each_member(const json& value, const json::json_pointer& path,
                 const std::function<void(const json::json_pointer&)>& f) {
  if (value.is_object())
    for (const auto& [key, member] : value.items()) {
      f(path / key);
      each_member(member, path / key, f);
    }
  if (value.is_array() && !value.empty()) each_member(value[0], path / 0, f);
}

// Negative control: each member that is taken away is missed by name, but for those that a result need not have and
// for names that are data.
TEST(Read, AMissingMemberIsNamed) {
  const json written = to_json(full());
  int missed = 0, passed = 0;
  each_member(written, json::json_pointer(), [&](const json::json_pointer& path) {
    const std::string name = path.back();
    json without = written;
    without[path.parent_pointer()].erase(name);
    const std::string error = error_of(without), way = path.to_string();
    const bool data = way.find("/dims/") != std::string::npos || way.find("/layouts/") != std::string::npos ||
                      way.find("settings/") != std::string::npos || way.find("/lines/") == 0 ||
                      way.find("/coverage/") == 0 || way.find("/largest/") == 0 || way.find("/machine/") == 0 ||
                      way.find("/shared_edges/") == 0 || way.find("/histograms/") != std::string::npos ||
                      way.find("ratios/") != std::string::npos || way.find("waived/") != std::string::npos;
    const bool optional = name == "witness" || name == "recomputes" || way == "/reference" || name == "algebra" ||
                          name == "not_algebraic" || name == "claims";
    if (optional || data) {
      ++passed;
      return;
    }
    EXPECT_NE(error.find(name), std::string::npos) << path << ": " << error;
    ++missed;
  });
  EXPECT_GT(missed, 150);
  EXPECT_GT(passed, 10);
}

// Negative control: a member of another type, or what is no result at all.
TEST(Read, WhatIsNoResultIsRefused) {
  const json written = to_json(full());
  EXPECT_EQ(error_of(written), "");
  for (const json& other :
       {json(), json(3), json::array(), json::object(), json{{"format", "fractus-verify result 2"}}})
    EXPECT_NE(error_of(other), "") << other;
  json changed = written;
  changed["format"] = "fractus-verify result 2";
  EXPECT_NE(error_of(changed).find("format: wanted 'fractus-verify result 1', got 'fractus-verify result 2'"),
            std::string::npos);
  changed = written;
  changed["properties"][1]["cases"] = -1;
  EXPECT_NE(error_of(changed).find("properties[1].cases: wanted a whole number from 0"), std::string::npos);
  changed = written;
  changed["properties"][1]["verdict"] = "FINE";
  EXPECT_NE(error_of(changed).find("properties[1].verdict: 'FINE' is unknown"), std::string::npos);
  changed = written;
  changed["properties"][0]["histograms"]["float32 y"].erase(0);
  EXPECT_NE(error_of(changed).find("properties[0].histograms.float32 y: wanted an array of 13 counts"),
            std::string::npos);
  changed = written;
  changed["properties"][0]["witness"]["found"]["dtype"] = "float16";
  EXPECT_NE(error_of(changed).find("properties[0].witness.found: "), std::string::npos);
}

// Protects: numbers that follow from others cannot be told otherwise.
TEST(Read, WhatContradictsItselfIsRefused) {
  const json written = to_json(full());
  for (const auto& [way, value] : std::vector<std::pair<std::string, json>>{{"/mutants/killed", 99},
                                                                            {"/mutants/survivors", {"x"}},
                                                                            {"/mutants/total", 1},
                                                                            {"/left_out", {"exact"}},
                                                                            {"/properties/0/worst_ratio", 0.125},
                                                                            {"/waiver_uses/shared-edges", 77},
                                                                            {"/reference/apart", 0.25}}) {
    json changed = written;
    changed[json::json_pointer(way)] = value;
    EXPECT_NE(error_of(changed).find("the other members make it"), std::string::npos)
        << way << ": " << error_of(changed);
  }
}

// Protects: a later version of this format may say more.
TEST(Read, UnknownMembersArePassedOver) {
  json written = to_json(full());
  written["later"] = {{"deep", 1}};
  written["properties"][0]["later"] = true;
  EXPECT_EQ(error_of(written), "");
}

// Protects: two readers of one text cannot see two results, and no text takes all memory or the stack.
TEST(Read, TextIsBounded) {
  const std::string text = to_json(full()).dump();
  EXPECT_THROW(result_from_text(R"({"seed": 1, "seed": 2})", "x"), std::runtime_error);
  EXPECT_THROW(result_from_text("{" + text.substr(1, text.size() - 2) + ", \"seed\": 5}", "x"), std::runtime_error);
  EXPECT_THROW(result_from_text(std::string(100'000, '['), "x"), std::runtime_error);
  EXPECT_THROW(result_from_text(text.substr(0, text.size() / 2), "x"), std::runtime_error);
}

// Protects every command that reads a result: whatever became of the file, an error or a result that every view takes.
TEST(Read, FlippedBytesNeverCrash) {
  EXPECT_TRUE(holds(100, [] {
    std::string text = to_json(concluded()).dump();
    const int flips = *rc::gen::inRange(1, 4);
    for (int i = 0; i < flips; ++i)
      text[*rc::gen::inRange<std::size_t>(0, text.size())] = static_cast<char>(*rc::gen::inRange(0, 256));
    try {
      Result result = result_from_text(text, "result.json");
      to_markdown(result);
      to_html(result);
      to_junit(result);
      to_text(result, false);
      conclude(result);
    } catch (const std::runtime_error& error) {
      RC_ASSERT(std::string(error.what()).find("result.json") != std::string::npos);
    }
  }));
}

}  // namespace
}  // namespace fractus
