// Statements, and the one way from a file's text to what it says.
#include "attest/statement.h"

#include <rapidcheck.h>

#include "attest/time.h"
#include "tests/attest/edited.h"
#include "tests/attest/folder.h"
#include "tests/oracle/property.h"

namespace fractus::attest {
namespace {

using nlohmann::json;

struct Statements : Folder {
  PrivateKey key;
  std::vector<PublicKey> keys;
  void SetUp() override {
    Folder::SetUp();
    key = read_private(new_key(folder / "k.pem").private_file);
    keys = {public_of(key)};
  }
};

Statement example() {
  return {{{"mine.py", "sha256", sha256_of_bytes("a")}, {"pkg", "tree-sha256", sha256_of_bytes("b")}},
          {{"format", predicate_format}, {"verdict", "EQUIVALENT"}, {"expires", "2027-01-01T00:00:00Z"}}};
}

// Protects the whole: any one byte of an envelope, replaced by any of several values, removed or doubled: it is
// refused, or every part of the statement that comes out is what was signed.
TEST_F(Statements, NoByteOfAnEnvelopeCanBeChanged) {
  const std::string text = signed_text(example(), key);
  ASSERT_EQ(open_envelope(text, keys).statement, example());
  int refused = 0, same = 0;
  const auto look = [&](const std::string& changed, std::size_t at) {
    try {
      ASSERT_EQ(open_envelope(changed, keys).statement, example()) << "at " << at << " of " << changed;
      ++same;
    } catch (const std::runtime_error&) {
      ++refused;
    }
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    const char was = text[at];
    for (const int value :
         {was ^ 1,   was ^ 2,  was ^ 4,  was ^ 32, was ^ 128, was + 1,  was - 1,  int{' '}, int{'\n'}, int{'"'},
          int{'\\'}, int{'A'}, int{'='}, int{'-'}, int{'_'},  int{'+'}, int{'/'}, int{'}'}, int{','},  0}) {
      changed[at] = static_cast<char>(value);
      if (changed[at] != was) look(changed, at);
    }
    look(text.substr(0, at) + text.substr(at + 1), at);
    look(text.substr(0, at) + was + text.substr(at), at);
  }
  // White space between the parts, and the id, which is a hint, may differ; of the rest nothing may.
  EXPECT_GT(refused, 10 * same);
  EXPECT_GT(same, 0);
}

// Protects: what is refused for its key says which keys were looked for and which the envelope names.
TEST_F(Statements, AnotherKeyIsNamed) {
  const NewKey other = new_key(folder / "other.pem");
  const std::string text = signed_text(example(), read_private(other.private_file));
  const std::string error = error_of([&] { open_envelope(text, keys, "'e.json'"); });
  EXPECT_NE(error.find("'e.json'"), std::string::npos) << error;
  EXPECT_NE(error.find(keyid(keys[0])), std::string::npos) << error;
  EXPECT_NE(error.find(other.keyid), std::string::npos) << error;
  EXPECT_EQ(open_envelope(text, std::vector{keys[0], read_public(other.public_file)}).keyid, other.keyid);
  EXPECT_NE(error_of([&] { open_envelope(text, {}); }), "");
}

// Protects: a good signature over another kind of payload, or over another kind of statement, is no verdict.
TEST_F(Statements, OtherPayloadsAreRefused) {
  const std::string payload = to_text(example());
  const auto error = [&](const std::string& type, const std::string& text) {
    return error_of([&] { open_envelope(to_text(sign(type, text, key)), keys); });
  };
  EXPECT_EQ(error(payload_type, payload), "");
  EXPECT_NE(error("application/json", payload).find("wanted is 'application/vnd.in-toto+json'"), std::string::npos);
  EXPECT_NE(error(payload_type, "{}").find("'_type'"), std::string::npos);
  const auto changed = [&](const char* member, const json& value) {
    json object = json::parse(payload);
    object[member] = value;
    return error(payload_type, object.dump());
  };
  EXPECT_NE(changed("_type", "https://in-toto.io/Statement/v0.1").find("'_type'"), std::string::npos);
  EXPECT_NE(changed("predicateType", "https://slsa.dev/provenance/v1").find("'predicateType'"), std::string::npos);
  EXPECT_NE(changed("predicate", json::array()).find("'predicate'"), std::string::npos);
  EXPECT_NE(changed("predicate", {{"format", "fractus-verify verdict 2"}}).find("'format'"), std::string::npos);
  EXPECT_NE(changed("subject", json::array()).find("binds no bytes"), std::string::npos);
  EXPECT_NE(changed("subject", json::array({{{"name", "a"}}})).find("wanted one digest"), std::string::npos);
  const std::string hex(64, 'a');
  const auto subject = [&](const std::string& name, const json& digest) {
    return json{{"name", name}, {"digest", digest}};
  };
  EXPECT_EQ(changed("subject", json::array({subject("a", {{"sha256", hex}})})), "");
  for (const json& digest : {json{{"sha256", hex}, {"sha512", hex}}, json{{"sha1", hex}}, json{{"sha256", hex + "a"}},
                             json{{"sha256", std::string(64, 'A')}}, json{{"sha256", 7}}, json(hex), json::object()})
    EXPECT_NE(changed("subject", json::array({subject("a", digest)})).find("subject 'a'"), std::string::npos) << digest;
  EXPECT_NE(changed("subject", json::array({subject("", {{"sha256", hex}})})).find("name"), std::string::npos);
  EXPECT_NE(changed("subject", {subject("a", {{"sha256", hex}}), subject("a", {{"sha256", std::string(64, 'b')}})})
                .find("two subjects"),
            std::string::npos);
  const std::string doubled =
      R"({"predicate":{"format":"fractus-verify verdict 1","verdict":"X"},)" + payload.substr(1);
  EXPECT_NE(error(payload_type, doubled).find("stands twice"), std::string::npos);
}

// Protects: nothing is signed that a reader would refuse.
TEST_F(Statements, WhatIsSignedCanBeRead) {
  Statement bad = example();
  bad.subjects[1].name = bad.subjects[0].name;
  EXPECT_NE(error_of([&] { signed_text(bad, key); }).find("two subjects"), std::string::npos);
  bad = example();
  bad.predicate.erase("format");
  EXPECT_NE(error_of([&] { signed_text(bad, key); }), "");
  bad = example();
  bad.subjects[0].name = "\xff";  // no UTF-8
  EXPECT_NE(error_of([&] { signed_text(bad, key); }), "");
}

// Protects against a crash, and against a statement with parts that nobody wrote: whatever is done to a payload, it is
// read, with as many digests as names, or refused with a sentence.
TEST(Statement, SurvivesAnyBytes) {
  const std::string text = to_text(example());
  EXPECT_TRUE(holds(3000, [&] {
    const std::string bytes = edited(text, 3);
    try {
      const Statement read = statement_from(bytes);
      RC_ASSERT(!read.subjects.empty());
      RC_ASSERT(read.predicate.is_object());
      RC_ASSERT(statement_from(to_text(read)) == read);
    } catch (const std::runtime_error& refused) {
      RC_ASSERT(std::string(refused.what()).find("the statement") == 0);
    }
  }));
  EXPECT_NE(error_of([] { statement_from(std::string(1 << 20, '{')); }), "");
}

// Protects: a time is written in one way, and is read back as what it was; what is no time is refused.
TEST(Time, HasOneForm) {
  EXPECT_EQ(text_of_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(text_of_time(951782399), "2000-02-28T23:59:59Z");
  EXPECT_EQ(time_from("2000-02-29T00:00:00Z"), 951782400);
  EXPECT_TRUE(holds(2000, [] {
    const auto seconds = *rc::gen::inRange<std::int64_t>(0, 253'402'300'800);
    RC_ASSERT(time_from(text_of_time(seconds)) == seconds);
  }));
  for (const char* text :
       {"", "2000-02-30T00:00:00Z", "1999-02-29T00:00:00Z", "2000-13-01T00:00:00Z", "2000-01-01T24:00:00Z",
        "2000-01-01T00:60:00Z", "2000-01-01T00:00:60Z", "2000-01-01T00:00:00", "2000-01-01t00:00:00Z",
        "2000-01-01T00:00:00+00:00", "2000-01-01 00:00:00Z", "+200-01-01T00:00:00Z", "2000-00-01T00:00:00Z",
        "1969-12-31T23:59:59Z", "2000-01-01T00:00:00Zx", "2000-01-01T0 :00:00Z"})
    EXPECT_THROW(time_from(text), std::invalid_argument) << text;
  EXPECT_THROW(text_of_time(-1), std::invalid_argument);
  EXPECT_THROW(text_of_time(253'402'300'800), std::invalid_argument);
}

}  // namespace
}  // namespace fractus::attest
