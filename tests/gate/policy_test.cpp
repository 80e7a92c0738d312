// What a policy file means, and that a slip in it never means less.
#include "gate/policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>

#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

// What is thrown; empty where nothing is.
std::string fault_of(const std::string& text, const std::string& name, const std::filesystem::path& folder = ".") {
  try {
    policy_from(text, name, folder);
  } catch (const std::runtime_error& fault) {
    return fault.what();
  }
  return "";
}

struct Keys : Folder {
  std::string pem, id;
  Keys() {
    attest::new_key(path / "ci.pem");
    pem = read_whole(path / "ci.pub.pem");
    id = attest::keyid(attest::read_public(path / "ci.pub.pem"));
  }
  std::string toml(const std::string& more = "") const {
    return fmt::format(
        "format = \"fractus-verify policy 1\"\nkeys = [\"ci.pub.pem\"]\n{}[kernels]\nlinear_attention = 1\n", more);
  }
};

// Protects: a member that is not written is as strict as the documentation says (docs/gate.md has this table).
TEST(Policy, HasStrictDefaults) {
  const Keys keys;
  const json same = "same", any = "any", none = json::array();
  EXPECT_EQ(to_json(policy_from(keys.toml(), "p.toml", keys.path)), (json{{"keys", json::array({keys.id})},
                                                                          {"revoked", none},
                                                                          {"kernels", {{"linear_attention", 1}}},
                                                                          {"forms", nullptr},
                                                                          {"preset", "live"},
                                                                          {"dtypes", {"float32", "float64"}},
                                                                          {"forward_only", false},
                                                                          {"waivers", none},
                                                                          {"uncovered", none},
                                                                          {"smallest_cases", 100},
                                                                          {"smallest_elements", 10'000},
                                                                          {"smallest_kills", 10},
                                                                          {"largest_undecidable_share", 0.05},
                                                                          {"max_age", "30d"},
                                                                          {"clock_skew", "2m"},
                                                                          {"machine",
                                                                           {{"cpu", any},
                                                                            {"cpu_features", same},
                                                                            {"cores", any},
                                                                            {"system", same},
                                                                            {"compiler", any},
                                                                            {"flags", any},
                                                                            {"torch", same},
                                                                            {"cuda", same},
                                                                            {"gpu", same},
                                                                            {"driver", same}}},
                                                                          {"revoked_plans", none},
                                                                          {"revoked_candidates", none},
                                                                          {"revoked_keys", none}}));
}

// Protects: every member is read, and means the same in either language.
TEST(Policy, IsTheSameInTomlAndJson) {
  const Keys keys;
  const std::string digest(64, 'c');
  const std::string toml = keys.toml(fmt::format(R"(preset = "smoke"
forms = ["kernels.py:attention"]
dtypes = ["float32"]
forward_only = true
waivers = ["memory-growth"]
uncovered = ["T = 0"]
smallest_cases = 1000
smallest_elements = 1_000_000
smallest_kills = 120
largest_undecidable_share = 0.01
max_age = "7d"
clock_skew = "30s"
revoked_plans = ["{0}"]
revoked_candidates = ["{0}"]
revoked_keys = ["{0}"]
machine = {{ cpu = "same", cpu_features = "superset", gpu = "any" }}
)",
                                                 digest));
  const json object{{"format", "fractus-verify policy 1"},
                    {"keys", {keys.pem}},
                    {"kernels", {{"linear_attention", 1}}},
                    {"forms", {"kernels.py:attention"}},
                    {"preset", "smoke"},
                    {"dtypes", {"float32"}},
                    {"forward_only", true},
                    {"waivers", {"memory-growth"}},
                    {"uncovered", {"T = 0"}},
                    {"smallest_cases", 1000},
                    {"smallest_elements", 1'000'000},
                    {"smallest_kills", 120},
                    {"largest_undecidable_share", 0.01},
                    {"max_age", "7d"},
                    {"clock_skew", "30s"},
                    {"machine", {{"cpu", "same"}, {"cpu_features", "superset"}, {"gpu", "any"}}},
                    {"revoked_plans", {digest}},
                    {"revoked_candidates", {digest}},
                    {"revoked_keys", {digest}}};
  const json read = to_json(policy_from(toml, "p.toml", keys.path));
  EXPECT_EQ(read, to_json(policy_from(object.dump(), "p.json", keys.path)));
  json defaults = to_json(policy_from(keys.toml(), "p.toml", keys.path));
  for (const auto& [member, value] : read.items())
    if (member != "keys" && member != "kernels" && member != "revoked") {
      EXPECT_NE(value, defaults[member]) << member;
    }
}

// Protects: a typo must not loosen a gate. The member that was meant is named.
TEST(Policy, RefusesWhatItDoesNotKnow) {
  const Keys keys;
  const auto refused = [&](const std::string& words, const std::string& more) {
    const std::string fault = fault_of(keys.toml(more), "p.toml", keys.path);
    EXPECT_NE(fault.find(words), std::string::npos) << more << fault;
    EXPECT_NE(fault.find("p.toml"), std::string::npos) << fault;
  };
  refused("unknown member 'revoked_plan'; did you mean revoked_plans", "revoked_plan = []\n");
  refused("unknown member 'max_ages'; did you mean max_age", "max_ages = \"1d\"\n");
  refused("unknown fact 'machine.torhc'; did you mean torch", "machine = { torhc = \"same\" }\n");
  refused("'machine.gpu': unknown value 'sane'; did you mean same", "machine = { gpu = \"sane\" }\n");
  refused("'machine.gpu': unknown value 'superset'", "machine = { gpu = \"superset\" }\n");
  refused("'preset': unknown value 'lives'; did you mean live", "preset = \"lives\"\n");
  refused("'dtypes': unknown value 'float16'", "dtypes = [\"float16\"]\n");
  refused("'dtypes'", "dtypes = []\n");
  refused("'forward_only': wanted true or false, got \"false\"", "forward_only = \"false\"\n");
  refused("'waivers': wanted a list of texts, got \"a\"", "waivers = \"a\"\n");
  refused("'waivers'", "waivers = [\"\"]\n");
  refused("'waivers'", "waivers = [1]\n");
  refused("'forms': wanted forms such as", "forms = []\n");
  for (const char* number : {"0", "-1", "1.0", "\"5\"", "true", "9223372036854775807", "[]"})
    refused("'smallest_cases': wanted a whole number", fmt::format("smallest_cases = {}\n", number));
  for (const char* share : {"-0.1", "1.01", "\"0\"", "true"})
    refused("'largest_undecidable_share'", fmt::format("largest_undecidable_share = {}\n", share));
  for (const char* share : {"nan", "inf", "-inf", "+nan"})
    refused("finite", fmt::format("largest_undecidable_share = {}\n", share));
  for (const char* span : {"\"30\"", "30", "\"0d\"", "\"1.5d\"", "\"forever\"", "\"\""})
    refused("'max_age': wanted a", fmt::format("max_age = {}\n", span));
  refused("date", "max_age = 2026-12-01\n");
  refused("'clock_skew': wanted at most 10m", "clock_skew = \"11m\"\n");
  for (const char* digest : {"\"abc\"", "\"sha256:aaaa\"", "5"})
    for (const char* member : {"revoked_plans", "revoked_candidates", "revoked_keys"})
      refused(fmt::format("'{}': wanted", member), fmt::format("{} = [{}]\n", member, digest));
  refused("64 lower-case", fmt::format("revoked_plans = [\"{}\"]\n", std::string(64, 'A')));
  refused("TOML", "preset = \"live\"\npreset = \"smoke\"\n");
  refused("TOML", "preset = live\n");
}

TEST(Policy, NeedsWhatHasNoUsualValue) {
  const Keys keys;
  const json whole{
      {"format", "fractus-verify policy 1"}, {"keys", {"ci.pub.pem"}}, {"kernels", {{"linear_attention", 1}}}};
  EXPECT_EQ(fault_of(whole.dump(), "p.json", keys.path), "");
  for (const auto& [member, value] : whole.items()) {
    json less = whole;
    less.erase(member);
    EXPECT_NE(fault_of(less.dump(), "p.json", keys.path).find(fmt::format("it has no '{}'", member)),
              std::string::npos);
  }
  const auto refused = [&](const char* member, const json& value) {
    json other = whole;
    other[member] = value;
    EXPECT_NE(fault_of(other.dump(), "p.json", keys.path), "") << other;
  };
  for (const json& value : {json(), json(1), json("fractus-verify policy 2"), json("")}) refused("format", value);
  for (const json& value : {json(), json::array(), json("ci.pub.pem"), json({"none.pem"}), json({"ci.pem"}), json({1}),
                            json({"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"}),
                            json(std::vector<std::string>(65, "ci.pub.pem"))})
    refused("keys", value);
  for (const json& value : {json(), json::object(), json::array({"moe"}), json{{"moe", 0}}, json{{"moe", "1"}}})
    refused("kernels", value);
  EXPECT_NE(fault_of(whole.dump(), "p.yaml", keys.path).find(".toml or .json"), std::string::npos);
  EXPECT_NE(fault_of("[]", "p.json", keys.path), "");
  EXPECT_NE(fault_of(R"({"preset":"live","preset":"smoke"})", "p.json").find("twice"), std::string::npos);
  EXPECT_THROW(policy_from(keys.path / "none.toml"), std::runtime_error);
}

// Protects: a key that was named and revoked is known as such, and may not sign.
TEST(Policy, SetsRevokedKeysApart) {
  const Keys keys;
  const Policy policy = policy_from(keys.toml(fmt::format("revoked_keys = [\"{}\"]\n", keys.id)), "p.toml", keys.path);
  EXPECT_TRUE(policy.keys.empty());
  EXPECT_EQ(policy.revoked.size(), 1u);
}

// Protects: with any byte of the policy changed, the code is refused, or the policy means the same. Held by a policy of
// the members that it needs; the number that another member has may be changed into another number, which only a digest
// of the whole can tell (--policy-sha256, in tests/cli/gate_test.py).
TEST(Policy, WithAnyByteChangedIsRefusedOrMeansTheSame) {
  Example example;
  example.sign();
  const std::string pem = read_whole(example.folder.path / "ci.pub.pem");
  const std::string toml = fmt::format(
      "format = \"fractus-verify policy 1\" # the gate's\nkeys = [\"\"\"{}\"\"\"]\n"
      "[kernels]\nlinear_attention = 1\n",
      pem);
  const std::string json_text =
      json{{"format", "fractus-verify policy 1"}, {"keys", {pem}}, {"kernels", {{"linear_attention", 1}}}}.dump(1);
  const std::string other_bytes = std::string("\0\n \"#x=~\xff", 9);
  for (const auto& [name, text] : {std::pair{"p.toml", toml}, {"p.json", json_text}}) {
    const json before = to_json(policy_from(text, name, "."));
    std::size_t refused = 0, same = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::string bytes = other_bytes;
      for (int bit = 0; bit < 8; ++bit) bytes += static_cast<char>(text[i] ^ (1 << bit));
      for (const char byte : bytes) {
        if (byte == text[i]) continue;
        std::string changed = text;
        changed[i] = byte;
        try {
          const Policy policy = policy_from(changed, name, ".");
          if (to_json(policy) == before) {
            ++same;
            continue;
          }
          const Answer answer =
              gate::admit({policy, example.machine, example.clock}, example.envelope, {example.artifact}).answer;
          EXPECT_FALSE(answer.admitted()) << name << " byte " << i << ": " << changed;
        } catch (const std::runtime_error&) {
        }
        ++refused;
      }
    }
    EXPECT_GT(refused, 10 * same) << name << " " << refused << " " << same;
    EXPECT_GT(same, 0u);  // a comment or white space: the test does see a change without effect
  }
}

// Protects the gate from any text in a policy's place: it is read or refused by an exception of ours.
TEST(Policy, OfAnyBytesIsReadOrRefused) {
  const Keys keys;
  const std::string toml = keys.toml("max_age = \"7d\"\nmachine = { gpu = \"any\" }\nwaivers = [\"a\", \"b\"]\n");
  const std::string json_text = json{
      {"format", "fractus-verify policy 1"},
      {"keys", {"ci.pub.pem"}},
      {"kernels", {{"linear_attention", 1}}},
      {"machine", {{"gpu", "any"}}},
      {"waivers", {"a", "b"}}}.dump(1);
  std::size_t read = 0, refused = 0;
  EXPECT_TRUE(rc::check("policy", [&] {
    const auto texts = *rc::gen::container<std::vector<int>>(20, rc::gen::inRange(0, 4));
    for (const int edits : texts) {
      const bool is_toml = *rc::gen::arbitrary<bool>();
      std::string text = is_toml ? toml : json_text;
      for (int i = 0; i < edits && !text.empty(); ++i) {
        const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
        switch (*rc::gen::inRange(0, 4)) {
          case 0: text[at] = *rc::gen::arbitrary<char>(); break;
          case 1: text.erase(at, *rc::gen::inRange<std::size_t>(1, 20)); break;
          case 2:
            text.insert(at,
                        *rc::gen::element<std::string>("[", "]", "{", "}", "=", "\"", "\n", "9e999", "\xc3", "'''"));
            break;
          default: text.resize(at);
        }
      }
      (fault_of(text, is_toml ? "p.toml" : "p.json", keys.path).empty() ? read : refused) += 1;
    }
  }));
  EXPECT_GT(read, 0u);
  EXPECT_GT(refused, 0u);
  for (const std::string& open : {std::string("["), std::string("{a="), std::string("{\"a\":"), std::string("a.")})
    for (const char* name : {"p.toml", "p.json"}) {
      std::string deep = name[2] == 't' ? "preset = " : "";
      for (int i = 0; i < 100'000; ++i) deep += open;
      EXPECT_NE(fault_of(deep, name), "") << open << name;
    }
  EXPECT_NE(fault_of(std::string(2 << 20, ' '), "p.toml").find("larger"), std::string::npos);
  EXPECT_NE(fault_of(std::string("preset = \"live\0\"", 16), "p.toml"), "");
}

}  // namespace
}  // namespace fractus::gate
