// What is signed of a result: EQUIVALENT for a whole run without a fault, and for nothing else.
#include "reports/statement.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "attest/time.h"
#include "reports/verdict.h"

namespace fractus {
namespace {

Result whole() {
  Result result;
  result.kernel = "linear_attention";
  result.candidate = "mine.py:f";
  result.plan_hash = result.plan_of = std::string(64, 'a');
  result.plan_properties = {"contract", "power"};
  result.dtypes = {"float32"};
  result.properties = {{.name = "contract", .planned = 3, .cases = 3, .elements = 40, .undecidable = 10}};
  result.kills = {{.form = "wrong", .killed = true, .property = "contract"}};
  result.power_measured = true;
  result.coverage.cases = {{"dtype float32", 3}};
  result.machine = {{"cpu", "A CPU"}, {"cpu_features", "avx2 fma"}};
  conclude(result);
  return result;
}

Bytes bytes() {
  return {{{"mine.py", "sha256", std::string(64, '1')}, {"helper.py", "sha256", std::string(64, '2')}},
          {{"helper.py", "sha256", std::string(64, '2')}, {"fractus-worker", "sha256", std::string(64, '3')}}};
}

// Protects the word: each thing that a whole run without a fault does not have keeps a result from being signed
// EQUIVALENT, whether the verdict's own rules see it or a result that calls itself EQUIVALENT hides it.
TEST(Statement, EquivalentIsAWholeRunWithoutAFault) {
  ASSERT_EQ(verdict_to_sign(whole()), "EQUIVALENT");
  const std::pair<const char*, std::function<void(Result&)>> faults[] = {
      {"left out", [](Result& r) { r.partial = true, r.only = {"contract"}; }},
      {"another plan", [](Result& r) { r.plan_hash = std::string(64, 'b'); }},
      {"no plan", [](Result& r) { r.plan_hash = r.plan_of = ""; }},
      {"cut", [](Result& r) { r.cut = "the budget was spent"; }},
      {"trouble", [](Result& r) { r.trouble = "it cannot be loaded"; }},
      {"unfit", [](Result& r) { r.unfit = "no sequence fills its block"; }},
      {"complaint", [](Result& r) { r.complaints = {"a known-good form breaks its contract"}; }},
      {"case not run", [](Result& r) { r.properties[0].cases = 2; }},
      {"finding", [](Result& r) { r.properties[0].finding = Finding{.kind = "different"}; }},
      {"doubt", [](Result& r) { r.properties[0].reason = "quarantined"; }},
      {"verdict of a property", [](Result& r) { r.properties[0].verdict = "UNDECIDED"; }},
      {"algebra that differs", [](Result& r) { r.properties[0].algebra = "it differs"; }},
      {"not algebraic, of a property that is about floats",
       [](Result& r) { r.properties[0].verdict = "NOT ALGEBRAIC"; }},
      {"not algebraic, and a finding",
       [](Result& r) {
         r.properties[0].name = "identity", r.properties[0].verdict = "NOT ALGEBRAIC";
         r.properties[0].finding = Finding{.kind = "value"};
       }},
      {"no property", [](Result& r) { r.properties.clear(); }},
      {"survivor", [](Result& r) { r.kills[0].killed = false; }},
      {"no mutant", [](Result& r) { r.kills.clear(); }},
      {"power not measured", [](Result& r) { r.power_measured = false; }},
      {"class of cases without one", [](Result& r) { r.coverage.cases["edges"] = 0; }},
      {"reference that fails", [](Result& r) { r.reference = Reference{.failures = {"it is wrong"}}; }},
      {"reference not run through",
       [](Result& r) { r.reference = Reference{.properties = {{.name = "contract", .planned = 3}}}; }},
  };
  for (const auto& [what, spoil] : faults) {
    Result lying = whole();
    spoil(lying);
    EXPECT_THROW(verdict_to_sign(lying), std::logic_error) << what;
    EXPECT_THROW(statement_of(lying, bytes(), 1, 2), std::logic_error) << what;
  }
}

// Protects: a form of which identity claims nothing is EQUIVALENT by all other properties.
TEST(Statement, NotAlgebraicIsNoFault) {
  Result result = whole();
  result.properties[0].name = "identity";
  result.properties[0].verdict = "NOT ALGEBRAIC";
  result.properties[0].cases = 1;
  EXPECT_EQ(verdict_to_sign(result), "EQUIVALENT");
}

// Protects: PARTIAL says that nothing wrong was found in what was run. Doubt or a fault keeps its own word.
TEST(Statement, PartialHasNoOtherReason) {
  const auto signed_as = [](const std::function<void(Result&)>& spoil) {
    Result result = whole();
    result.partial = true;
    result.only = {"contract"};
    result.plan_hash = std::string(64, 'b');
    spoil(result);
    conclude(result);
    return verdict_to_sign(result);
  };
  EXPECT_EQ(signed_as([](Result&) {}), "PARTIAL");
  EXPECT_EQ(signed_as([](Result& r) { r.properties[0].cases = 2; }), "UNDECIDED");
  EXPECT_EQ(signed_as([](Result& r) { r.cut = "the budget was spent"; }), "UNDECIDED");
  EXPECT_EQ(signed_as([](Result& r) { r.properties[0].undecidable = 40; }), "UNDECIDED");
  EXPECT_EQ(signed_as([](Result& r) { r.properties[0].finding = Finding{.kind = "different"}; }), "DIFFERENT");
  EXPECT_EQ(signed_as([](Result& r) { r.trouble = "it cannot be loaded"; }), "FAILED");
}

// Protects the gate's reading: each member says what the result says.
TEST(Statement, SaysWhatTheResultSays) {
  const Result result = whole();
  const attest::Statement statement = statement_of(result, bytes(), 0, 86400);
  const nlohmann::json& says = statement.predicate;
  EXPECT_EQ(says.at("result"), to_json(result));
  EXPECT_EQ(says.at("verdict"), "EQUIVALENT");
  EXPECT_EQ(says.at("cases"), 3);
  EXPECT_EQ(says.at("elements"), 40);
  EXPECT_EQ(says.at("undecidable_share"), 0.25);
  EXPECT_EQ(says.at("mutants"),
            (nlohmann::json{{"measured", true}, {"killed", 1}, {"total", 1}, {"survivors", nlohmann::json::array()}}));
  EXPECT_EQ(says.at("coverage").at("covered"), 1);
  EXPECT_EQ(says.at("machine").at("cpu_features"), (nlohmann::json{"avx2", "fma"}));
  EXPECT_EQ(says.at("issued"), "1970-01-01T00:00:00Z");
  EXPECT_EQ(says.at("expires"), "1970-01-02T00:00:00Z");
  // A file of both roles is one subject.
  EXPECT_EQ(statement.subjects.size(), 3u);
  EXPECT_EQ(bytes_in(statement), bytes());
  EXPECT_EQ(bytes_in(attest::statement_from(attest::to_text(statement))), bytes());
}

// Protects: a statement is about bytes, of one meaning, and for a while.
TEST(Statement, UnfitBytesAndTimesAreRefused) {
  EXPECT_THROW(statement_of(whole(), {}, 1, 2), std::invalid_argument);
  EXPECT_THROW(statement_of(whole(), bytes(), 2, 2), std::invalid_argument);
  Bytes two = bytes();
  two.reference[0].digest = std::string(64, '9');  // another helper.py
  EXPECT_THROW(statement_of(whole(), two, 1, 2), std::invalid_argument);
}

}  // namespace
}  // namespace fractus
