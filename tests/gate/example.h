// What the gate's tests share: a folder of their own with a key, a policy, an artifact and an envelope that is
// admitted.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "attest/files.h"
#include "attest/statement.h"
#include "gate/admission.h"

namespace fractus::gate {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "fractus-gate-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  std::filesystem::path put(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path / name;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::remove(file);  // a file that is cut and written again waits for the disk on some file systems
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    return file;
  }
};

// One key for all examples: making one waits for the disk.
inline const std::pair<attest::PrivateKey, std::string>& shared_key() {
  static const auto key = [] {
    const Folder folder;
    const attest::NewKey made = attest::new_key(folder.path / "ci.pem");
    return std::pair{attest::read_private(made.private_file), read_whole(made.public_file)};
  }();
  return key;
}

// A verdict that the example's policy admits at the example's clock, with one file as its candidate.
struct Example {
  Folder folder;
  std::filesystem::path envelope = folder.path / "envelope.json";
  attest::PrivateKey key = shared_key().first;
  std::filesystem::path artifact = folder.put("kernels.py", "def attention(q, k, v):\n    return q\n");
  nlohmann::json policy{
      {"format", "fractus-verify policy 1"}, {"keys", {"ci.pub.pem"}}, {"kernels", {{"linear_attention", 1}}}};
  attest::Statement statement;
  Facts machine{{"cpu", "A"},          {"cpu_features", "avx2 fma"}, {"cores", "2"},
                {"system", "Linux x"}, {"torch", "2.11.0"},          {"cuda", "13.0"}};
  Instant clock = *instant_from("2026-12-01T12:00:00Z");

  Example() {
    folder.put("ci.pub.pem", shared_key().second);
    statement.subjects = {{"src/kernels.py", "sha256", attest::sha256_of(artifact)}};
    statement.predicate = {
        {"format", "fractus-verify verdict 1"},
        {"verdict", "EQUIVALENT"},
        {"kernel", "linear_attention"},
        {"candidate", "src/kernels.py:attention"},
        {"settings", nlohmann::json::object()},
        {"contract_version", 1},
        {"plan_hash", std::string(64, 'a')},
        {"seed", 1},
        {"preset", "live"},
        {"dtypes", {"float32", "float64"}},
        {"forward_only", false},
        {"waived", nlohmann::json::array()},
        {"cases", 1185},
        {"elements", 15'958'486},
        {"undecidable", 151'546},
        {"undecidable_share", 0.0095},
        {"mutants", {{"measured", true}, {"killed", 124}, {"total", 124}, {"survivors", nlohmann::json::array()}}},
        {"coverage", {{"covered", 63}, {"planned", 63}, {"missing", nlohmann::json::array()}}},
        {"properties", {{{"name", "rounding"}, {"verdict", "PASSED"}, {"cases", 1185}, {"planned", 1185}}}},
        {"machine",
         {{"cpu", "B"},
          {"cpu_features", {"avx2", "fma"}},
          {"cores", "64"},
          {"system", "Linux x"},
          {"compiler", "g++ 12"},
          {"torch", "2.11.0"},
          {"cuda", "13.0"}}},
        {"issued", "2026-12-01T10:00:00Z"},
        {"expires", "2026-12-31T10:00:00Z"},
        {"candidate_subjects", {"src/kernels.py"}},
        {"reference_subjects", nlohmann::json::array()}};
  }

  Policy read_policy() const { return policy_from(policy.dump(), "policy.json", folder.path); }

  void sign() const { folder.put("envelope.json", attest::signed_text(statement, key)); }

  Admission admit(const std::vector<std::filesystem::path>& artifacts) const {
    sign();
    return gate::admit({read_policy(), machine, clock}, envelope, artifacts);
  }
  Admission admit() const { return admit({artifact}); }
};

inline std::string text_of(const Answer& answer) {
  std::string text;
  for (const Refusal& refusal : answer.refusals)
    text += refusal.check + ": " + refusal.fact + "\n  -> " + refusal.remedy + "\n";
  return text;
}

// One refusal and no other, by this check and with these words in its fact; every refusal has a remedy.
inline void expect_one(const Answer& answer, const std::string& check, const std::string& words) {
  EXPECT_FALSE(answer.admitted());
  ASSERT_EQ(answer.refusals.size(), 1u) << check << " " << words << "\n" << text_of(answer);
  EXPECT_EQ(answer.refusals[0].check, check) << text_of(answer);
  EXPECT_NE(answer.refusals[0].fact.find(words), std::string::npos) << words << "\n" << text_of(answer);
  EXPECT_FALSE(answer.refusals[0].remedy.empty());
}

}  // namespace fractus::gate
