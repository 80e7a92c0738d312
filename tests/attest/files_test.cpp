// A report and its envelope are written together, whole or not at all, whenever the writer is killed.
#include "attest/files.h"

#include <signal.h>
#include <sys/wait.h>

#include <random>
#include <thread>

#include "attest/statement.h"
#include "tests/attest/folder.h"

namespace fractus::attest {
namespace {

struct Killed : Folder {
  PrivateKey key;
  std::vector<PublicKey> keys;
  void SetUp() override {
    Folder::SetUp();
    key = read_private(new_key(folder / "k.pem").private_file);
    keys = {public_of(key)};
  }

  // Report and envelope of one run, told apart by the number of the run.
  std::vector<std::pair<std::filesystem::path, std::string>> pair(int run) const {
    json report{{"run", run}, {"filling", std::string(300'000, 'x')}, {"end", true}};
    const Statement statement{{{"a", "sha256", sha256_of_bytes("a")}},
                              {{"format", predicate_format}, {"result", report}}};
    return {{folder / "out/report.json", report.dump()}, {folder / "out/envelope.json", signed_text(statement, key)}};
  }
  using json = nlohmann::json;
};

// Protects the reader: a process that writes pairs of runs without pause is killed at a hundred moments. Whatever is
// there then is whole, is signed, and report and envelope are of one run.
TEST_F(Killed, NothingHalfWrittenIsAccepted) {
  std::filesystem::create_directory(folder / "out");
  const auto first = pair(1), second = pair(2);
  std::mt19937 random(7);
  int whole = 0, absent = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t writer = fork();
    if (writer == 0)
      while (true) {
        write_together(first);
        write_together(second);
      }
    ASSERT_GT(writer, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    std::optional<json> report, statement;
    if (std::filesystem::exists(folder / "out/report.json"))
      report = json::parse(read_whole(folder / "out/report.json"));  // throws where it is half a file
    if (std::filesystem::exists(folder / "out/envelope.json"))
      statement = open_envelope(read_whole(folder / "out/envelope.json"), keys).statement.predicate.at("result");
    if (report && statement) {
      ASSERT_EQ(*report, *statement) << round;
      ++whole;
    } else {
      ++absent;
    }
    // A kill leaves temporary files behind; their names are never those of a report or an envelope.
    for (const auto& entry : std::filesystem::directory_iterator(folder / "out"))
      if (const std::string name = entry.path().filename(); name != "report.json" && name != "envelope.json") {
        ASSERT_TRUE(name.starts_with("report.json.") || name.starts_with("envelope.json.")) << name;
        std::filesystem::remove(entry);
      }
  }
  EXPECT_GT(whole, 0);  // that some moments lie within the writing is what the next test shows
  EXPECT_EQ(whole + absent, 100);
}

// The same moments find halves of a file that is written in place, so they lie within the writing.
TEST_F(Killed, WritingInPlaceWouldBeSeen) {
  const std::filesystem::path file = folder / "report.json";
  const std::string text = json{{"filling", std::string(300'000, 'x')}}.dump();
  std::mt19937 random(7);
  int halves = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t writer = fork();
    if (writer == 0)
      while (true) std::ofstream(file) << text << std::flush;
    ASSERT_GT(writer, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    if (std::filesystem::exists(file) && !json::accept(text_of(file))) ++halves;
  }
  EXPECT_GT(halves, 0);
}

}  // namespace
}  // namespace fractus::attest
