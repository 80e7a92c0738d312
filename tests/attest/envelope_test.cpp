// Envelopes: what is read, what is verified, and that nothing but the signed bytes is.
#include "attest/envelope.h"

#include <rapidcheck.h>

#include <nlohmann/json.hpp>

#include "tests/attest/edited.h"
#include "tests/attest/folder.h"
#include "tests/oracle/property.h"

namespace fractus::attest {
namespace {

using nlohmann::json;

const PrivateKey& key_of(int which) {
  static const std::vector<PrivateKey> keys = [] {
    std::vector<PrivateKey> made;
    for (int i = 0; i < 2; ++i) {
      std::string folder = std::filesystem::temp_directory_path() / "fractus-keys-XXXXXX";
      if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder");
      made.push_back(read_private(new_key(std::filesystem::path(folder) / "k.pem").private_file));
      std::filesystem::remove_all(folder);
    }
    return made;
  }();
  return keys[static_cast<std::size_t>(which)];
}

std::vector<PublicKey> pub(int which) { return {public_of(key_of(which))}; }

json example() { return json::parse(to_text(sign("text/plain", "hello world", key_of(0)))); }

std::string refused(const json& object) {
  return error_of([&] { envelope_from(object.dump()); });
}

// Protects interoperability: the encoding is that of the DSSE protocol, whose own example this is.
TEST(Envelope, EncodesAsTheProtocolSays) {
  EXPECT_EQ(pre_authentication_encoding("http://example.com/HelloWorld", "hello world"),
            "DSSEv1 29 http://example.com/HelloWorld 11 hello world");
  EXPECT_EQ(pre_authentication_encoding("", ""), "DSSEv1 0  0 ");
}

// Protects every payload: whatever its bytes, what is read is what was signed, and only the signer's key verifies it.
TEST(Envelope, SignsAndVerifiesAnyBytes) {
  EXPECT_TRUE(holds(300, [](const std::string& payload, const std::string& more) {
    const std::string type = "application/" + std::to_string(more.size());
    const Envelope read = envelope_from(to_text(sign(type, payload, key_of(0))));
    RC_ASSERT(read.payload == payload);
    RC_ASSERT(read.payload_type == type);
    RC_ASSERT(verified_by(read, pub(0)) == keyid(public_of(key_of(0))));
    RC_ASSERT(!verified_by(read, pub(1)));
    Envelope other = read;
    other.payload += more;
    RC_ASSERT(verified_by(other, pub(0)).has_value() == more.empty());
    other = read;
    other.payload_type += "x";
    RC_ASSERT(!verified_by(other, pub(0)));
  }));
}

// Protects the signature's meaning: a byte of it that differs verifies nothing, nor does it with bytes more or less.
TEST(Envelope, EveryByteOfTheSignatureCounts) {
  const Envelope good = sign("t", "payload", key_of(0));
  for (std::size_t at = 0; at < good.signatures[0].bytes.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      Envelope bad = good;
      bad.signatures[0].bytes[at] = static_cast<char>(bad.signatures[0].bytes[at] ^ (1 << bit));
      ASSERT_FALSE(verified_by(bad, pub(0))) << at << " " << bit;
    }
  Envelope longer = good;
  longer.signatures[0].bytes += '\0';
  EXPECT_FALSE(verified_by(longer, pub(0)));
  longer.signatures[0].bytes.resize(63);
  EXPECT_FALSE(verified_by(longer, pub(0)));
}

// Protects against the second form of a signature: S + L (the group's order) stands for the same point, and RFC 8032
// wants it refused.
TEST(Envelope, TheOtherFormOfASignatureIsRefused) {
  const unsigned char order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                   0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                   0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
  Envelope envelope = sign("t", "payload", key_of(0));
  unsigned carry = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    carry += static_cast<unsigned char>(envelope.signatures[0].bytes[32 + i]) + order[i];
    envelope.signatures[0].bytes[32 + i] = static_cast<char>(carry & 0xff);
    carry >>= 8;
  }
  ASSERT_EQ(carry, 0u);
  EXPECT_FALSE(verified_by(envelope, pub(0)));
}

// Protects: an id in the envelope is a hint. One that lies neither lets a signature pass nor keeps one from passing.
TEST(Envelope, TheKeysIdIsOnlyAHint) {
  json lying = example();
  lying["signatures"][0]["keyid"] = keyid(public_of(key_of(1)));
  EXPECT_TRUE(verified_by(envelope_from(lying.dump()), pub(0)));
  EXPECT_FALSE(verified_by(envelope_from(lying.dump()), pub(1)));
  lying["signatures"][0].erase("keyid");
  EXPECT_TRUE(verified_by(envelope_from(lying.dump()), pub(0)));
  lying["signatures"][0]["keyid"] = nullptr;
  EXPECT_TRUE(verified_by(envelope_from(lying.dump()), pub(0)));
  lying["signatures"][0]["keyid"] = 7;
  EXPECT_NE(refused(lying).find("'keyid'"), std::string::npos);
}

// Protects: further signatures, by others and by other kinds of keys, take nothing from a good one and add nothing.
TEST(Envelope, OneGoodSignatureOfSeveralIsEnough) {
  Envelope envelope = sign("t", "payload", key_of(0));
  const Signature good = envelope.signatures[0];
  envelope.signatures = {{"other", std::string(71, 'x')}, sign("t", "payload", key_of(1)).signatures[0], good};
  const Envelope read = envelope_from(to_text(envelope));
  EXPECT_EQ(verified_by(read, pub(0)), keyid(public_of(key_of(0))));
  EXPECT_EQ(verified_by(read, pub(1)), keyid(public_of(key_of(1))));
  EXPECT_FALSE(verified_by(read, {}));
  envelope.signatures.pop_back();
  EXPECT_FALSE(verified_by(envelope_from(to_text(envelope)), pub(0)));
  envelope.signatures.assign(33, good);
  EXPECT_NE(error_of([&] { envelope_from(to_text(envelope)); }).find("at most"), std::string::npos);
}

// Protects: each part that is missing, empty or of another type is refused by its name; members that the protocol does
// not know are let be, as it wants.
TEST(Envelope, MalformedOnesAreRefusedByName) {
  json more = example();
  more["unknown"] = {{"payload", 1}};
  more["signatures"][0]["cert"] = "x";
  EXPECT_EQ(refused(more), "");
  for (const std::string member : {"payload", "payloadType", "signatures"}) {
    for (const json& wrong : {json(), json(1), json(json::object()), json(json::array()), json("")}) {
      json changed = example();
      changed[member] = wrong;
      if (member == "payload" && wrong == "") continue;  // an empty payload is one
      EXPECT_NE(refused(changed).find("'" + member + "'"), std::string::npos) << member << wrong << refused(changed);
    }
    json changed = example();
    changed.erase(member);
    EXPECT_NE(refused(changed).find("'" + member + "'"), std::string::npos) << member;
  }
  json unsigned_one = example();
  unsigned_one["signatures"] = json::array();
  EXPECT_NE(refused(unsigned_one).find("nobody has signed"), std::string::npos);
  unsigned_one["signatures"] = {json::object()};
  EXPECT_NE(refused(unsigned_one).find("'sig'"), std::string::npos);
  for (const char* text : {"", "[]", "null", "{", "{}x", "\"payload\"", "\xff"})
    EXPECT_NE(error_of([&] { envelope_from(text); }), "") << text;
}

// Protects: all of the text is read. A parser that takes a zero byte for the end would let anything stand behind it.
TEST(Envelope, HoldsNoZeroByte) {
  const std::string text = example().dump();
  envelope_from(text);
  for (const std::string& more : {std::string(1, '\0'), std::string("\0{}", 3)})
    EXPECT_NE(error_of([&] { envelope_from(text + more); }).find("zero byte"), std::string::npos);
}

// Protects: two readers see one envelope. Of a name that stands twice, one would take the first and one the last.
TEST(Envelope, ANameThatStandsTwiceIsRefused) {
  const std::string text = example().dump();
  for (const std::string member :
       {R"("payload":"AAAA",)", R"("payloadType":"x",)", R"("signatures":[],)", R"("pay\u006coad":"AAAA",)"})
    EXPECT_NE(error_of([&] { envelope_from("{" + member + text.substr(1)); }).find("stands twice"), std::string::npos)
        << member;
}

// Protects: a payload and a signature have one text in each alphabet. Another text of the same bytes, or a text that a
// lenient reader would bend into bytes, is refused.
TEST(Envelope, Base64IsCanonical) {
  const auto payload_of = [](const std::string& text) {
    json changed = example();
    changed["payload"] = text;
    try {
      return envelope_from(changed.dump()).payload;
    } catch (const std::exception&) {
      return std::string("refused");
    }
  };
  EXPECT_EQ(payload_of("aGk="), "hi");
  EXPECT_EQ(payload_of("+/+/"), payload_of("-_-_"));
  EXPECT_EQ(payload_of("+/+/").size(), 3u);
  for (const char* text : {"aGl=", "aGk", "aGk=\n", " aGk=", "aG k=", "aGk==", "a===", "====", "+_+/", "aGk=aGk=", "a",
                           "aGk*", "\xc3\xa9==", "=GkA"})
    EXPECT_EQ(payload_of(text), "refused") << text;
  EXPECT_EQ(payload_of(std::string("aG\0=", 4)), "refused");
}

// Protects the reader's stack and memory.
TEST(Envelope, DeepAndLargeTextsAreRefused) {
  EXPECT_NE(error_of([] { envelope_from(std::string(1 << 20, '[')); }).find("deep"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_NE(error_of([&] { envelope_from(objects); }).find("deep"), std::string::npos);
  EXPECT_NE(error_of([] { envelope_from(std::string((16 << 20) + 1, ' ')); }).find("larger"), std::string::npos);
  EXPECT_NE(error_of([] { envelope_from("[" + std::string(5 << 20, '1')); }), "");
}

// Protects against a crash: whatever is cut off, put in or turned over in an envelope, it is read or refused with a
// sentence, and what still verifies says the same.
TEST(Envelope, SurvivesAnyBytes) {
  const std::string text = to_text(sign("text/plain", "hello world", key_of(0)));
  EXPECT_TRUE(holds(3000, [&] {
    const std::string bytes = edited(text, 4);
    try {
      const Envelope read = envelope_from(bytes);
      if (!verified_by(read, pub(0))) return;
      RC_ASSERT(read.payload == "hello world");
      RC_ASSERT(read.payload_type == "text/plain");
    } catch (const std::runtime_error& refused) {
      RC_ASSERT(std::string(refused.what()).find("the envelope") == 0);
    }
  }));
}

}  // namespace
}  // namespace fractus::attest
