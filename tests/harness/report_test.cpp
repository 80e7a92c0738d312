// What a reader sees: text that is not ours, times, waivers.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "attest/files.h"
#include "reports/result.h"
#include "reports/words.h"
#include "tests/harness/example.h"

namespace fractus {
namespace {

// Protects the terminal and every report from what a candidate says.
TEST(Words, ForeignTextIsVisible) {
  EXPECT_EQ(visible("plain, caf\u00e9 \u2264 1"), "plain, caf\u00e9 \u2264 1");
  EXPECT_EQ(visible("a\033[31mred\r\n\tb"), "a\\x1b[31mred\\r\\n\\tb");
  EXPECT_EQ(visible(std::string("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(visible("\xc2\x9b"
                    "31m \u202e \u2028"),
            "\\u009b31m \\u202e \\u2028");
  EXPECT_EQ(visible("\xff \xc3 \xc0\xaf \xed\xa0\x80 \xf5"), "\\xff \\xc3 \\xc0\\xaf \\xed\\xa0\\x80 \\xf5");
  EXPECT_EQ(visible_lines("a\n\tb\033"), "a\n\tb\\x1b");
  EXPECT_EQ(tail_of("ab\u00e9", 1), "");
  EXPECT_EQ(tail_of("ab\u00e9", 2), "\u00e9");
  EXPECT_EQ(tail_of("ab", 5), "ab");
}

TEST(Words, TimesHaveAFittingUnit) {
  EXPECT_EQ(time_text(0), "0 s");
  EXPECT_EQ(time_text(0.001), "1 ms");
  EXPECT_EQ(time_text(0.0004), "0.4 ms");
  EXPECT_EQ(time_text(11.34), "11.3 s");
  EXPECT_EQ(time_text(120), "120 s");
  EXPECT_EQ(time_text(600), "10 min");
  EXPECT_EQ(time_text(5 * 3600), "5 h");
  EXPECT_EQ(time_text(1e7), "2778 h");
}

TEST(Words, AnExceptionIsCutAndVisible) {
  Process process = workshop().spawn();
  const Answer loud = call(process, example("test_raise_loudly"), 20s);
  EXPECT_EQ(loud.status, Status::raised);
  EXPECT_EQ(loud.message.find("\\x1b[2Jgone\\nxxx"), 0u) << loud.message.substr(0, 100);
  EXPECT_LT(loud.message.size(), 2100u);
  EXPECT_TRUE(loud.message.ends_with("... (9998009 bytes more)")) << loud.message.substr(loud.message.size() - 50);
  call(process, example("test_prints_escapes"), 20s);
  EXPECT_EQ(process.output_tail(), "first\n```\n\\x1b]0;title\\x07 \\xff\n");
}

Result failed() {
  Result result;
  result.verdict = Verdict::failed;
  result.waived = {"memory-growth", "shared-edges"};
  PropertyResult contract;
  contract.name = "contract";
  contract.waived["memory-growth"] = 3;
  contract.finding = Finding{.kind = "raised", .text = "it raised: ![x](http://y) `z` | <b> \\n"};
  contract.witness = Witness{};
  result.properties = {contract};
  result.candidate_output = "first\n```\n# not a heading\n";
  return result;
}

// Protects the report's page from being ended, or drawn on, by what a candidate says.
TEST(Report, ForeignTextStaysText) {
  const std::string page = to_markdown(failed());
  EXPECT_NE(page.find("\\!\\[x\\](http\\://y) \\`z\\` \\| \\<b\\> \\\\n"), std::string::npos) << page;
  EXPECT_NE(page.find("\n    first\n    ```\n    # not a heading\n"), std::string::npos) << page;
  EXPECT_EQ(page.find("\n```"), std::string::npos);
  EXPECT_NE(to_text(failed(), false).find("\n    first\n    ```\n    # not a heading\n"), std::string::npos);
}

// Protects: a waiver that was given to be safe, and let nothing pass, takes nothing from the verdict.
TEST(Report, TellsWhichWaiversWereNeeded) {
  const std::string words = "waived: memory-growth; waived, and never needed: shared-edges";
  EXPECT_NE(to_text(failed(), false).find("FAILED (" + words + ")"), std::string::npos);
  EXPECT_NE(to_markdown(failed()).find("- " + words + "\n"), std::string::npos);
  EXPECT_EQ(to_json(failed()).at("waiver_uses"), (nlohmann::json{{"memory-growth", 3}, {"shared-edges", 0}}));
}

// A limit on the size of files stands for a disk that is full: what is longer cannot be written.
struct FullDisk {
  rlimit before{};
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit smaller{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &smaller);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before); }
};

// Protects: a page of one run beside the numbers of another. Where the second file does not fit, the first is not
// replaced either, and nothing of the attempt is left.
TEST(Files, AreReplacedTogetherOrNotAtAll) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "fractus-files-test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto page = folder / "report.md", numbers = folder / "report.json";
  write_together({{page, "old page"}, {numbers, "old numbers"}});
  {
    const FullDisk full(4096);
    EXPECT_THROW(write_together({{page, "new page"}, {numbers, std::string(8192, '1')}}), std::runtime_error);
  }
  EXPECT_EQ(read_whole(page), "old page");
  EXPECT_EQ(read_whole(numbers), "old numbers");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fractus
