// Shards of one plan: together they are judged as the whole run is, and what is no shard of it is refused.
#include "reports/merge.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/verdict.h"
#include "tests/oracle/property.h"
#include "tests/reports/example.h"

namespace fractus {
namespace {

// A whole run, with nothing in it that ends a run early: what ends a shard early ends that shard alone.
Result whole_run() {
  Result r = any_result();
  r.trouble.clear();
  r.unfit.clear();
  r.cut.clear();
  r.backward_alone.clear();
  conclude(r);
  return r;
}

// The part of the run that a shard with these properties and power would have been.
Result shard_of(const Result& whole, const std::vector<std::string>& properties, bool first) {
  Result r = whole;
  r.partial = true;
  r.only = properties;
  r.only.emplace_back("power");
  r.plan_hash = std::string(64, first ? 'b' : 'c');
  const auto elsewhere = [&](const std::string& property) { return !contains(properties, property); };
  std::erase_if(r.properties, [&](const PropertyResult& p) { return elsewhere(p.name); });
  if (r.reference) std::erase_if(r.reference->properties, [&](const PropertyResult& p) { return elsewhere(p.name); });
  std::erase_if(r.lines, [&](const auto& line) { return elsewhere(line.first); });
  for (Kill& kill : r.kills)
    if (elsewhere(kill.property)) kill = {.form = kill.form, .summary = kill.summary};
  if (!first) {
    r.complaints.clear();
    r.audit.clear();                                         // each call is one shard's
    for (auto& [name, count] : r.coverage.cases) count = 0;  // every case is one property's; here all are the first's
  }
  conclude(r);
  return r;
}

// The same but for what says that they are shards, and how long it took.
nlohmann::json judged(Result r) {
  r.shards.clear();
  r.seconds = 0;
  return to_json(r);
}

// Protects the merged verdict: shards add up to the result of the whole run, member by member, however they were cut.
TEST(Merge, ShardsAddUpToTheWholeRun) {
  EXPECT_TRUE(holds(100, [] {
    const Result whole = whole_run();
    std::vector<std::string> a, b;
    for (const PropertyResult& p : whole.properties) (*rc::gen::arbitrary<bool>() ? a : b).push_back(p.name);
    RC_PRE(!a.empty() && !b.empty());
    const std::vector<Shard> shards{{"a.json", shard_of(whole, a, true)}, {"b.json", shard_of(whole, b, false)}};
    const nlohmann::json differences = nlohmann::json::diff(judged(whole), judged(merged(shards)));
    RC_LOG(differences.dump());
    RC_ASSERT(differences.empty());
    RC_ASSERT(merged(shards).shards == (std::vector<std::string>{std::string(64, 'b'), std::string(64, 'c')}));
    RC_ASSERT(judged(merged({shards[1], shards[0]})).at("verdict") == judged(whole).at("verdict"));
  }));
}

// A right form, whose every property passed and whose every known-wrong form was caught.
Result clean_run() {
  return sampled([] {
    Result r = whole_run();
    r.complaints.clear();
    r.reference.reset();
    r.waived.clear();
    r.lines.clear();
    r.machine = {{"cpu", "some cpu"}};
    for (PropertyResult& p : r.properties) {
      p.finding.reset();
      p.witness.reset();
      p.waived.clear();
      p.cases = p.planned;
      p.undecidable = 0;
      p.algebra.clear();
      p.not_algebraic.reset();
    }
    for (Kill& kill : r.kills) {
      kill.killed = true;
      kill.property = "exact";
    }
    for (auto& [name, count] : r.coverage.cases) count = 1;
    conclude(r);
    return r;
  });
}

std::string refusal(const std::vector<Shard>& shards) {
  try {
    merged(shards);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Merge, WholeOnlyWithEveryProperty) {
  const Result whole = clean_run();
  ASSERT_EQ(whole.verdict, Verdict::equivalent) << whole.reasons.front();
  const Result a = shard_of(whole, {"contract", "exact"}, true), b = shard_of(whole, {"rounding"}, false),
               c = shard_of(whole, {"memory"}, false);
  EXPECT_EQ(merged({{"a", a}, {"b", b}, {"c", c}}).verdict, Verdict::equivalent);
  EXPECT_EQ(merged({{"a", a}, {"b", b}, {"c", c}}).plan_hash, whole.plan_of);

  const Result part = merged({{"a", a}, {"b", b}});
  EXPECT_EQ(part.verdict, Verdict::undecided);
  EXPECT_TRUE(part.partial);
  EXPECT_EQ(part.plan_hash, "");
  EXPECT_EQ(part.reasons,
            std::vector<std::string>{"partial: no shard has memory; nothing wrong was found in the others"});
  EXPECT_EQ(left_out(part), std::vector<std::string>{"memory"});
  EXPECT_EQ(merged({{"ab", part}, {"c", c}}).verdict, Verdict::equivalent);  // merged in steps
}

// Protects: a list in a file that claims more than the file holds makes no whole plan.
TEST(Merge, APropertyCountsByItsRecord) {
  const Result whole = clean_run();
  Result a = shard_of(whole, {"contract", "exact"}, true);
  a.only = whole.plan_properties;
  EXPECT_EQ(merged({{"a", a}}).verdict, Verdict::undecided);
  EXPECT_EQ(left_out(merged({{"a", a}})), (std::vector<std::string>{"rounding", "memory"}));
}

// Protects: power is a measure of the whole plan, so each part has to have been measured.
TEST(Merge, PowerNeedsEveryShard) {
  const Result whole = clean_run();
  const Result a = shard_of(whole, {"contract", "exact"}, true);
  Result b = shard_of(whole, {"rounding", "memory"}, false);
  EXPECT_EQ(merged({{"a", a}, {"b", b}}).verdict, Verdict::equivalent);
  b.only = {"rounding", "memory"};
  b.kills.clear();
  b.power_measured = false;
  const Result both = merged({{"a", a}, {"b", b}});
  EXPECT_EQ(both.verdict, Verdict::undecided);
  EXPECT_EQ(left_out(both), std::vector<std::string>{"power"});
}

// Protects: what a shard alone lets live is a gap of the plan only where no other catches it.
TEST(Merge, AFormIsKilledWhereAnyShardKillsIt) {
  const Result whole = clean_run();
  Result a = shard_of(whole, {"contract", "exact"}, true), b = shard_of(whole, {"rounding", "memory"}, false);
  EXPECT_FALSE(b.kills[0].killed);
  a.kills[0].property = "exact (float64 only)";  // nothing of this plan's dtype: b's catch is the better one
  b.kills[0].killed = true;
  b.kills[0].property = "rounding";
  EXPECT_EQ(merged({{"a", a}, {"b", b}}).kills[0].property, "rounding");
  for (Result* r : {&a, &b}) r->kills[0] = {.form = r->kills[0].form};
  const Result both = merged({{"a", a}, {"b", b}});
  EXPECT_EQ(both.verdict, Verdict::mistrusted);
  EXPECT_NE(both.reasons.front().find("the plan does not see 1 known-wrong form(s): wrong_0"), std::string::npos);

  // One shard found it wrong in the backward alone; it is a measure of none of them.
  a.kills.erase(a.kills.begin());
  a.backward_alone = {"wrong_0"};
  EXPECT_EQ(merged({{"a", a}, {"b", b}}).verdict, Verdict::equivalent);
  EXPECT_EQ(merged({{"a", a}, {"b", b}}).backward_alone, std::vector<std::string>{"wrong_0"});
}

TEST(Merge, TheWorstShardDecides) {
  const Result whole = clean_run();
  const Result a = shard_of(whole, {"contract", "exact"}, true);
  Result b = shard_of(whole, {"rounding", "memory"}, false);
  Result cut = b;
  cut.cut = "the budget of 1 s was spent before the plan was through";
  EXPECT_EQ(merged({{"a", a}, {"b", cut}}).verdict, Verdict::undecided);
  b.properties[0].finding = Finding{.kind = "value", .tensor = "y", .text = "off"};
  EXPECT_EQ(merged({{"a", a}, {"b", b}}).verdict, Verdict::different);
  b.properties[0].finding->broken = true;
  EXPECT_EQ(merged({{"a", a}, {"b", b}}).verdict, Verdict::failed);
  Result unloadable = shard_of(whole, {"rounding", "memory"}, false);
  unloadable.trouble = "it cannot be loaded";
  EXPECT_EQ(merged({{"a", a}, {"b", unloadable}}).verdict, Verdict::failed);
}

// Negative control for each thing that shards must share: it is refused, with both values.
TEST(Merge, WhatDiffersIsRefused) {
  const Result whole = clean_run();
  const Shard a{"a.json", shard_of(whole, {"contract", "exact"}, true)};
  const auto refused = [&](const std::string& fact, const std::string& other_value, auto change) {
    Shard b{"b.json", shard_of(whole, {"rounding", "memory"}, false)};
    EXPECT_EQ(refusal({a, b}), "");
    change(b.result);
    const std::string error = refusal({a, b});
    EXPECT_NE(error.find(fact), std::string::npos) << fact << ": " << error;
    EXPECT_NE(error.find(other_value + " in b.json"), std::string::npos) << fact << ": " << error;
  };
  refused("seed", "99", [](Result& r) { r.seed = 99; });
  refused("preset", "live", [](Result& r) { r.preset = "live"; });
  refused("dtypes", "[\"float64\"]", [](Result& r) { r.dtypes = {"float64"}; });
  refused("contract version", "7", [](Result& r) { r.contract_version = 7; });
  refused("settings", "{\"block\":9}", [](Result& r) { r.settings["block"] = 9; });
  refused("complete plan", "zz", [](Result& r) { r.plan_of = "zz"; });
  refused("waived", "[\"shared-edges\"]", [](Result& r) { r.waived = {"shared-edges"}; });
  refused("machine: cpu", "another cpu", [](Result& r) { r.machine["cpu"] = "another cpu"; });
  refused("machine: gpu", "a gpu", [](Result& r) { r.machine["gpu"] = "a gpu"; });
  refused("reference", "looped", [](Result& r) { r.reference = Reference{.name = "looped"}; });

  Shard b{"b.json", shard_of(whole, {"rounding", "memory"}, false)};
  b.result.seed = 99;
  b.result.preset = "live";
  const std::string both = refusal({a, b});
  EXPECT_NE(both.find("seed"), std::string::npos);
  EXPECT_NE(both.find("preset"), std::string::npos);
  b = {"b.json", shard_of(whole, {"rounding", "memory"}, false)};
  b.result.candidate = "looped";
  EXPECT_NE(refusal({a, b}).find("different candidates"), std::string::npos);
}

// Protects: a property that two shards ran counts once, and only where they agree.
TEST(Merge, APropertyInTwoShards) {
  const Result whole = clean_run();
  const Shard a{"a.json", shard_of(whole, {"contract", "exact"}, true)};
  Shard b{"b.json", shard_of(whole, {"exact", "rounding", "memory"}, false)};
  EXPECT_EQ(merged({a, b}).properties.size(), 4u);
  EXPECT_EQ(merged({a, b}).verdict, Verdict::equivalent);
  b.result.properties[0].worst_ratio = {{"float32 y", 0.99}};
  b.result.properties[0].seconds = 9;
  EXPECT_GE(merged({a, b}).properties[1].worst(), 0.99);  // the one that came nearer to its bound
  b.result.properties[0].cases += 1;
  EXPECT_NE(refusal({a, b}).find("cases of exact"), std::string::npos);
  b = {"b.json", shard_of(whole, {"exact", "rounding", "memory"}, false)};
  b.result.properties[0].finding = Finding{.kind = "bits", .tensor = "S", .text = "off"};
  b.result.properties[0].verdict = "DIFFERENT";
  EXPECT_NE(refusal({a, b}).find("verdict of exact: PASSED in a.json, DIFFERENT in b.json"), std::string::npos);
}

}  // namespace
}  // namespace fractus
