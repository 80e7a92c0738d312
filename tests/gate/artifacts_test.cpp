// The bytes that will be loaded, and where they lie.
#include "gate/artifacts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/gate/example.h"

namespace fractus::gate {
namespace {

// A candidate of several files and folders, by what lies there.
struct Several : Example {
  Several() { statement.subjects.clear(); }

  std::filesystem::path subject(const std::string& name, const std::string& text) {
    const auto file = folder.put("run/" + name, text);
    statement.subjects.push_back({name, "sha256", attest::sha256_of(file)});
    name_all();
    return file;
  }
  std::filesystem::path tree(const std::string& name) {
    statement.subjects.push_back({name, "tree-sha256", attest::tree_sha256(folder.path / "run" / name)});
    name_all();
    return folder.path / "run" / name;
  }
  void name_all() {
    statement.predicate["candidate_subjects"] = nlohmann::json::array();
    for (const auto& one : statement.subjects) statement.predicate["candidate_subjects"].push_back(one.name);
  }
};

// Protects: whatever byte of the file is another, it is not loaded.
TEST(Artifact, WithAnyByteChangedIsRefused) {
  const Example example;
  const std::string text = read_whole(example.artifact);
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      example.folder.put("kernels.py", changed);
      EXPECT_FALSE(example.admit().answer.admitted()) << i << " " << bit;
    }
  example.folder.put("kernels.py", text);
  EXPECT_TRUE(example.admit().answer.admitted());
}

TEST(Artifact, OfOtherBytesIsNamedWithBothDigests) {
  const Example example;
  example.folder.put("kernels.py", "other");
  const Answer answer = example.admit().answer;
  ASSERT_EQ(answer.refusals.size(), 2u) << text_of(answer);
  EXPECT_NE(answer.refusals[0].fact.find(example.statement.subjects[0].digest), std::string::npos);
  EXPECT_NE(answer.refusals[0].fact.find(attest::sha256_of_bytes("other")), std::string::npos);
  EXPECT_NE(answer.refusals[1].fact.find("'src/kernels.py'"), std::string::npos) << text_of(answer);
}

// Protects: Python finds a module by its name, so verified bytes under another name are another program.
TEST(Artifact, OfAnotherNameIsRefused) {
  const Example example;
  const auto moved = example.folder.put("other/kernels.py", read_whole(example.artifact));
  EXPECT_TRUE(example.admit({moved}).answer.admitted());
  const auto renamed = example.folder.put("numpy.py", read_whole(example.artifact));
  expect_one(example.admit({renamed}).answer, "artifact", "wanted kernels.py");
}

TEST(Artifact, ThatIsNotThereOrNoFileIsRefused) {
  const Example example;
  const Answer answer = example.admit({example.folder.path / "none.py"}).answer;
  ASSERT_EQ(answer.refusals.size(), 2u) << text_of(answer);
  EXPECT_NE(answer.refusals[0].fact.find("none.py"), std::string::npos);
  EXPECT_FALSE(example.admit({"/dev/null"}).answer.admitted());
  EXPECT_FALSE(example.admit({}).answer.admitted());
}

TEST(Artifact, BesideTheVerifiedOnesIsRefused) {
  const Example example;
  const auto stranger = example.folder.put("torch.py", "print('here')");
  expect_one(example.admit({example.artifact, stranger}).answer, "artifact", "torch.py' (sha256 ");
}

TEST(Artifact, OfTheReferenceIsRefused) {
  Example example;
  const auto old = example.folder.put("old.py", "the form in use");
  example.statement.subjects.push_back({"old.py", "sha256", attest::sha256_of(old)});
  example.statement.predicate["reference_subjects"] = {"old.py"};
  EXPECT_TRUE(example.admit().answer.admitted());
  expect_one(example.admit({example.artifact, old}).answer, "artifact", "is the reference");
  // In both roles it is the candidate's.
  example.statement.predicate["candidate_subjects"].push_back("old.py");
  expect_one(example.admit().answer, "artifact", "'old.py'");
}

// Protects: a statement that names no bytes of a candidate, or bytes that it has no digest of, admits nothing.
TEST(Artifact, OfAStatementThatBindsNothingIsRefused) {
  Example example;
  example.statement.predicate["reference_subjects"] = {"src/kernels.py"};
  example.statement.predicate["candidate_subjects"] = nlohmann::json::array();
  expect_one(example.admit().answer, "artifact", "binds no bytes of a candidate");
  example.statement.predicate["candidate_subjects"] = {"src/kernels.py", "src/more.py"};
  expect_one(example.admit().answer, "artifact", "'src/more.py'");
}

// Protects: all files of a candidate, in the places that they had.
TEST(Artifacts, LieAsTheyDidInTheRun) {
  Several several;
  const auto first = several.subject("src/pkg/__init__.py", ""),
             second = several.subject("src/pkg/sub/__init__.py", "x"),
             third = several.subject("src/kernels.py", "import pkg");
  EXPECT_TRUE(several.admit({first, second, third}).answer.admitted());
  EXPECT_TRUE(several.admit({third, first, second}).answer.admitted());
  expect_one(several.admit({first, third}).answer, "artifact", "'src/pkg/sub/__init__.py'");
  // The same bytes, changed about.
  const auto swapped = [&](const std::string& folder, const char* a, const char* b) {
    return std::vector<std::filesystem::path>{several.folder.put(folder + "/pkg/__init__.py", a),
                                              several.folder.put(folder + "/pkg/sub/__init__.py", b),
                                              several.folder.put(folder + "/kernels.py", "import pkg")};
  };
  EXPECT_TRUE(several.admit(swapped("pod", "", "x")).answer.admitted());
  expect_one(several.admit(swapped("wrong", "x", "")).answer, "artifact", "lie or are named otherwise");
  // One of two that are equal is missing.
  several.subject("src/pkg/empty.py", "");
  expect_one(several.admit({first, second, third}).answer, "artifact", "lie or are named otherwise");
}

// Protects: what Python would run in place of the verified source. A folder's digest binds it.
TEST(Artifact, WithACompiledFormBesideItIsRefused) {
  Several several;
  const auto file = several.subject("pkg/kernels.py", "1");
  several.folder.put("run/pkg/__pycache__/kernels2.cpython-311.pyc", "of another source");
  EXPECT_TRUE(several.admit({file}).answer.admitted());
  several.folder.put("run/pkg/__pycache__/kernels.cpython-311.pyc", "anything");
  expect_one(several.admit({file}).answer, "artifact", "__pycache__/kernels.cpython-311.pyc' may be run in place of");
  const auto folder = several.tree("pkg");
  EXPECT_TRUE(several.admit({folder}).answer.admitted());
}

// Protects: a folder is the whole of it, down to an entry more.
TEST(Artifacts, OfAFolderAreTheWholeOfIt) {
  Several several;
  several.subject("pkg/kernels.py", "import helper");
  several.folder.put("run/pkg/helper.py", "1");
  const auto folder = several.tree("pkg");
  EXPECT_TRUE(several.admit({folder}).answer.admitted());
  expect_one(several.admit({folder, folder / "kernels.py"}).answer, "artifact", "part of a folder");
  const Answer by_file = several.admit({folder / "kernels.py"}).answer;
  EXPECT_EQ(by_file.refusals.size(), 2u) << text_of(by_file);
  std::filesystem::create_directory(folder / "torch");
  EXPECT_FALSE(several.admit({folder}).answer.admitted());
  std::filesystem::remove(folder / "torch");
  std::filesystem::permissions(folder / "helper.py", std::filesystem::perms::owner_exec,
                               std::filesystem::perm_options::add);
  EXPECT_FALSE(several.admit({folder}).answer.admitted());
}

// Protects: a folder of verified files may hold more than they, so it is no artifact without a digest of its own.
TEST(Artifacts, OfAFolderThatWasNotVerifiedAreRefused) {
  Several several;
  const auto file = several.subject("pkg/kernels.py", "1");
  const Answer answer = several.admit({file.parent_path()}).answer;
  ASSERT_EQ(answer.refusals.size(), 2u) << text_of(answer);
  EXPECT_NE(answer.refusals[0].remedy.find("--subject"), std::string::npos);
}

// A file of the candidate outside of the folder is asked for beside it.
TEST(Artifacts, OfAFolderAndAFileAreBothWanted) {
  Several several;
  several.folder.put("run/pkg/helper.py", "1");
  const auto folder = several.tree("pkg"), file = several.subject("pkg2/kernels.py", "2");
  EXPECT_TRUE(several.admit({folder, file}).answer.admitted());
  expect_one(several.admit({folder}).answer, "artifact", "'pkg2/kernels.py'");
}

}  // namespace
}  // namespace fractus::gate
