// A run resumes at the token where it was cut, or not at all.
#include "gate/manifest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/gate/checkpoint_file.h"
#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

using nlohmann::json;

constexpr std::uint64_t batch = 4, sequence = 128, slice = batch * sequence;

struct Resuming {
  Folder folder;
  json manifest{{"step_tokens", slice}, {"gpus", json::object()}};
  Resuming() {
    folder.put("shards/a.bin", std::string(4 * (10 * slice + 1), '\0'));
    folder.put("ckpt/a.pt", file::checkpoint());
    for (const char* id : {"0", "1"})
      manifest["gpus"][id] = {{"start_token", 4 * slice},
                              {"tokens_processed", 4 * slice},
                              {"checkpoint", "ckpt/a.pt"},
                              {"shard", "shards/a.bin"}};
  }
  json& gpu() { return manifest["gpus"]["1"]; }
  void start_at(const json& token) { gpu()["start_token"] = gpu()["tokens_processed"] = token; }
  Answer answer(std::uint64_t b = batch, std::uint64_t t = sequence) const {
    return check_manifest({folder.put("RESUME_MANIFEST.json", manifest.dump()), b, t});
  }
};

void expect_in(const std::string& words, const std::string& text) {
  EXPECT_NE(text.find(words), std::string::npos) << "wanted: " << words << "\ngot: " << text;
}

// Protects: a run that may resume is let through, in each spelling that the manifest may have.
TEST(Manifest, AdmitsWhatResumes) {
  Resuming run;
  EXPECT_TRUE(run.answer().admitted()) << text_of(run.answer());
  run.start_at(4.0 * slice);
  run.gpu()["shard"] = {{"path", "shards/a.bin"}, {"tokens", 10 * slice + 1}};
  run.gpu()["checkpoint"] = (run.folder.path / "ckpt/a.pt").string();
  EXPECT_TRUE(run.answer().admitted()) << text_of(run.answer());
  run.start_at(0);
  EXPECT_TRUE(run.answer().admitted());
  run.start_at(9 * slice);  // the last whole slice
  EXPECT_TRUE(run.answer().admitted());
  EXPECT_TRUE(run.answer(2, 256).admitted());  // another batch whose tokens are the same
  EXPECT_TRUE(run.answer(8, 32).admitted());   // half of them divide the offset too
}

// Protects: a batch that does not divide the offset, the trap that read tokens again, is refused with both numbers and
// the nearest offsets.
TEST(Manifest, NamesOffsetsThatDoNotDivide) {
  Resuming run;
  run.start_at(1000);
  expect_one(
      run.answer(), "manifest",
      "gpu \"1\": start_token 1000 is no multiple of 512 = 4 x 128 (batch x sequence); nearest offsets: 512 below "
      "reads 488 tokens again, 1024 above skips 24");
  run.start_at(4 * slice);
  const Answer both = run.answer(3);
  ASSERT_EQ(both.refusals.size(), 2u);  // of each gpu
  expect_in(
      "2048 is no multiple of 384 = 3 x 128 (batch x sequence); nearest offsets: 1920 below reads 128 tokens again, "
      "2304 above skips 256",
      text_of(both));
}

// Protects: each other condition, on its own fault.
TEST(Manifest, RefusesEachFault) {
  const auto fault = [](auto edit) {
    Resuming run;
    edit(run);
    return run.answer();
  };
  expect_one(fault([](Resuming& r) { r.gpu()["tokens_processed"] = 5 * slice; }), "manifest",
             "start_token 2048 is not tokens_processed 2560");
  expect_one(fault([](Resuming& r) { r.start_at(10 * slice); }), "manifest", "does not lie within shard");
  expect_one(fault([](Resuming& r) { r.start_at(1000 * slice); }), "manifest", "does not lie within shard");
  expect_one(fault([](Resuming& r) {
               r.folder.put("shards/b.bin", std::string(4 * 5 * slice, '\0')), r.gpu()["shard"] = "shards/b.bin";
             }),
             "manifest", "which has 2560");  // five slices of tokens hold four with their targets
  expect_one(fault([](Resuming& r) { r.gpu()["shard"] = "shards/c.bin"; }), "manifest", "it is not there");
  expect_one(fault([](Resuming& r) { r.gpu()["shard"] = "shards"; }), "manifest", "no regular file");
  expect_one(
      fault([](Resuming& r) { r.folder.put("x", std::string(4 * 9 * slice + 2, '\0')), r.gpu()["shard"] = "x"; }),
      "manifest", "no whole number of int32 tokens");
  expect_one(fault([](Resuming& r) {
               r.folder.put("x", "\x93NUMPY" + std::string(4 * 9 * slice, '\0')), r.gpu()["shard"] = "x";
             }),
             "manifest", ".npy");
  expect_one(fault([](Resuming& r) {
               r.gpu()["shard"] = {{"path", "shards/a.bin"}, {"tokens", 99}};
             }),
             "manifest", "has 5121 tokens, the manifest says 99");
  expect_one(fault([](Resuming& r) { r.gpu()["checkpoint"] = "ckpt/b.pt"; }), "manifest", "cannot be opened");
  expect_one(fault([](Resuming& r) {
               r.folder.put("ckpt/b.pt", file::checkpoint().substr(0, 200)), r.gpu()["checkpoint"] = "ckpt/b.pt";
             }),
             "manifest", "cut short");
  expect_one(fault([](Resuming& r) { r.gpu()["checkpoint"] = "../a.pt"; }), "manifest", "climbs out");
  expect_one(fault([](Resuming& r) { r.gpu()["shard"] = "shards/../../a.bin"; }), "manifest", "climbs out");
  expect_one(fault([](Resuming& r) { r.gpu()["shard"] = 3; }), "manifest", "wanted a path");
  expect_one(fault([](Resuming& r) { r.gpu()["shard"] = std::string("a\0b", 3); }), "manifest", "is no path");
  expect_one(fault([](Resuming& r) { r.gpu().erase("shard"); }), "manifest", "has no 'shard'");
  expect_one(fault([](Resuming& r) { r.start_at(2048.5); }), "manifest", "wanted a whole number");
  expect_one(fault([](Resuming& r) { r.start_at(-2048); }), "manifest", "wanted a whole number");
  expect_one(fault([](Resuming& r) { r.start_at(1e300); }), "manifest", "wanted a whole number");
  expect_one(fault([](Resuming& r) { r.start_at("2048"); }), "manifest", "wanted a whole number");
  expect_one(fault([](Resuming& r) { r.manifest.erase("step_tokens"); }), "manifest", "has no 'step_tokens'");
  expect_one(fault([](Resuming& r) { r.manifest["step_tokens"] = 0; }), "manifest", "step_tokens is 0");
  expect_one(fault([](Resuming& r) { r.manifest["gpus"] = json::object(); }), "manifest", "no object of 1 to");
  expect_one(fault([](Resuming& r) { r.manifest["gpus"]["01"] = r.gpu(); }), "manifest", "in two spellings");
  const Folder folder;
  expect_one(check_manifest({folder.put("m.json", R"({"step_tokens":1,"gpus":{"0":{},"0":{}}})"), 1, 1}), "manifest",
             "0");
  EXPECT_FALSE(check_manifest({folder.path / "absent.json", 1, 1}).admitted());
  Resuming run;
  EXPECT_FALSE(run.answer(0, 128).admitted());
  EXPECT_FALSE(run.answer(std::uint64_t{1} << 33, std::uint64_t{1} << 33).admitted());
  run.start_at(UINT64_MAX);
  expect_in("is no multiple of 512", text_of(run.answer()));
}

// Protects: all faults are named at once.
TEST(Manifest, ListsEveryFault) {
  Resuming run;
  run.start_at(1000);
  run.gpu()["tokens_processed"] = 999;
  run.gpu()["shard"] = "absent.bin";
  run.gpu()["checkpoint"] = "absent.pt";
  run.manifest["gpus"]["0"]["start_token"] = 1;
  EXPECT_EQ(run.answer().refusals.size(), 6u) << text_of(run.answer());
}

// Protects: the arithmetic of offsets, against its own definition over all of 64 bits.
TEST(Manifest, OffsetsAreWholeSlices) {
  Resuming run;
  EXPECT_TRUE(rc::check("offsets", [&] {
    const auto b = *rc::gen::inRange<std::uint64_t>(1, 9), t = *rc::gen::inRange<std::uint64_t>(1, 300);
    const auto start = *rc::gen::inRange<std::uint64_t>(0, 11 * slice);
    run.start_at(start);
    run.manifest["gpus"].erase("0");
    RC_ASSERT(run.answer(b, t).admitted() == (start % (b * t) == 0 && start + b * t + 1 <= 10 * slice + 1));
  }));
}

// Protects the reader from any bytes: it says what is wrong, or reads counts that the text has.
TEST(Manifest, FuzzedBytes) {
  const Resuming run;
  const std::string whole = run.manifest.dump();
  EXPECT_TRUE(rc::check("bytes", [&] {
    std::string text = whole;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      if (*rc::gen::arbitrary<bool>())
        text[at] = *rc::gen::arbitrary<char>();
      else
        text.insert(
            at, *rc::gen::element<std::string>("[", "]", "{", "}", ",", "\"", "-", "9e999", "\xc3", "\\u0000", "null"));
    }
    try {
      RC_ASSERT(!manifest_from(text, "m").gpus.empty());
    } catch (const std::runtime_error& fault) {
      RC_ASSERT(std::string(fault.what()).starts_with("m"));
    }
  }));
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(manifest_from(whole.substr(0, length), "m"), std::runtime_error) << length;
}

}  // namespace
}  // namespace fractus::gate
