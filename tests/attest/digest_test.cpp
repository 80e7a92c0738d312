// Digests of files and folders: each thing that changes what would be loaded changes them, and nothing else does.
#include "attest/digest.h"

#include <functional>
#include <set>

#include "tests/attest/folder.h"

namespace fractus::attest {
namespace {

using Digests = Folder;
namespace fs = std::filesystem;

// Protects interoperability: FIPS 180-2's own examples, by memory and by file.
TEST_F(Digests, AreThoseOfTheStandard) {
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(sha256_of_bytes("abc"), abc);
  EXPECT_EQ(sha256_of(write("abc", "abc")), abc);
  EXPECT_EQ(sha256_of_bytes(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  // A million times 'a': more than one read's worth.
  EXPECT_EQ(sha256_of(write("a", std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest_of(folder / "abc"), (Digest{"sha256", abc}));
  EXPECT_EQ(digest_of(folder).algorithm, "tree-sha256");
}

// Protects: what has no bytes of its own has no digest, and the error says which it is. A pipe would wait for ever.
TEST_F(Digests, OnlyFilesAndFoldersHaveOne) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { sha256_of(folder / "pipe"); }).find("no regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { sha256_of(folder); }).find("no regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { sha256_of("/dev/null"); }).find("no regular file"), std::string::npos);
  EXPECT_NE(error_of([&] { sha256_of(folder / "absent"); }).find("absent"), std::string::npos);
  EXPECT_NE(error_of([&] { tree_sha256(folder); }).find("neither file, folder nor link"), std::string::npos);
  EXPECT_NE(error_of([&] { tree_sha256(folder / "absent"); }).find("absent"), std::string::npos);
  EXPECT_NE(error_of([] { tree_sha256("/"); }).find("whole file system"), std::string::npos);
}

// Protects the definition in docs/signing.md: the digest is that of the records as they are written down here by hand.
TEST_F(Digests, ATreeIsWhatTheDocumentSays) {
  write("b.py", "b");
  write("a/run", "a", 0755);
  fs::create_directory(folder / "empty");
  fs::create_symlink("b.py", folder / "c.py");
  using namespace std::string_literals;
  const std::string records = "fractus-verify tree 1\0"s + "d - a\0"s + "x " + sha256_of_bytes("a") + " a/run\0"s +
                              "f " + sha256_of_bytes("b") + " b.py\0"s + "l " + sha256_of_bytes("b.py") + " c.py\0"s +
                              "d - empty\0"s;
  EXPECT_EQ(tree_sha256(folder), sha256_of_bytes(records));
  EXPECT_EQ(tree_sha256(folder.string() + "/"), sha256_of_bytes(records));
}

// Protects the gate: each change to a folder that could change what is loaded from it is seen.
TEST_F(Digests, EveryChangeToATreeIsSeen) {
  const auto build = [&] {
    for (const auto& entry : fs::directory_iterator(folder)) fs::remove_all(entry);
    write("m/__init__.py", "");
    write("m/kernel.py", "x = 1\n");
    write("m/data.bin", std::string("\0\xff", 2));
    fs::create_symlink("kernel.py", folder / "m/alias.py");
  };
  build();
  const std::string before = tree_sha256(folder);
  build();
  EXPECT_EQ(tree_sha256(folder), before);  // times and inodes are no part of it
  chmod((folder / "m/kernel.py").c_str(), 0600);
  EXPECT_EQ(tree_sha256(folder), before);  // nor is who else may read it
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"a byte", [&] { write("m/kernel.py", "x = 2\n"); }},
      {"a new file", [&] { write("m/__pycache__/kernel.cpython-311.pyc", "other bytes"); }},
      {"an empty file", [&] { write("m/new.py", ""); }},
      {"an empty folder", [&] { fs::create_directory(folder / "numpy"); }},
      {"a file less", [&] { fs::remove(folder / "m/__init__.py"); }},
      {"a name",
       [&] { fs::rename(folder / "m/kernel.py", folder / "m/kernels.py"), fs::remove(folder / "m/alias.py"); }},
      {"a place", [&] { fs::rename(folder / "m/data.bin", folder / "data.bin"); }},
      {"the right to execute", [&] { chmod((folder / "m/data.bin").c_str(), 0755); }},
      {"a link's target",
       [&] { fs::remove(folder / "m/alias.py"), fs::create_symlink("data.bin", folder / "m/alias.py"); }},
      {"a copy in place of a link", [&] { fs::remove(folder / "m/alias.py"), write("m/alias.py", "x = 1\n"); }},
      {"two files swapped",
       [&] {
         write("m/kernel.py", std::string("\0\xff", 2));
         write("m/data.bin", "x = 1\n");
       }},
  };
  for (const auto& [what, change] : changes) {
    build();
    change();
    EXPECT_NE(tree_sha256(folder), before) << what;
  }
}

// Protects: names cannot play at being records. Each pair of folders differs, and so do their digests.
TEST_F(Digests, NamesCannotPretend) {
  write("1/a", "");
  write("1/b", "");
  write("2/a\nf " + sha256_of_bytes("") + " b", "");
  write("3/a b", "");
  write("4/a/b", "");
  std::set<std::string> digests;
  for (const char* name : {"1", "2", "3", "4"}) digests.insert(tree_sha256(folder / name));
  EXPECT_EQ(digests.size(), 4u);
}

// Protects: bytes that lie outside of the folder could be changed without a trace in its digest.
TEST_F(Digests, LinksMayNotLeaveTheTree) {
  write("outside.py", "x");
  write("tree/deep/a.py", "x");
  const auto refused = [&](const std::string& target, const std::string& at) {
    fs::create_symlink(target, folder / "tree" / at);
    const std::string error = error_of([&] { tree_sha256(folder / "tree"); });
    fs::remove(folder / "tree" / at);
    return error;
  };
  EXPECT_NE(refused("../outside.py", "link").find("out of the folder"), std::string::npos);
  EXPECT_NE(refused((folder / "outside.py").string(), "link").find("out of the folder"), std::string::npos);
  EXPECT_EQ(refused("..", "deep/up"), "");  // the tree itself
  EXPECT_NE(refused("../..", "deep/up").find("out of the folder"), std::string::npos);
  EXPECT_NE(refused("nowhere", "link").find("leads nowhere"), std::string::npos);
  EXPECT_NE(refused("link", "link").find("leads nowhere"), std::string::npos);
  EXPECT_EQ(refused("deep/a.py", "link"), "");
  // Its text stays inside, and by way of another link it leaves.
  fs::create_symlink("..", folder / "tree/deep/up");
  EXPECT_NE(refused("deep/up/../outside.py", "link").find("out of the folder"), std::string::npos);
}

}  // namespace
}  // namespace fractus::attest
