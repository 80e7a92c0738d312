#include "cli/attest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "attest/files.h"
#include "attest/statement.h"
#include "attest/time.h"
#include "cli/commands.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

using nlohmann::json;

constexpr int refused = 1;
constexpr std::int64_t day = 24 * 3600;

// This process holds a private key: it leaves no core behind, and other processes of this user (the candidate's is one)
// may neither attach to it nor read its memory.
void guard_process() {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0 || ::prctl(PR_SET_DUMPABLE, 0) != 0)
    throw std::runtime_error("cannot keep this process from leaving a core, which would hold the private key");
}

std::int64_t lifetime_from(const std::string& text) {
  static const std::map<std::string, std::int64_t> units{{"m", 60}, {"h", 3600}, {"d", day}, {"w", 7 * day}};
  std::int64_t amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  const auto unit = units.find(std::string(end, text.data() + text.size()));
  if (error != std::errc() || unit == units.end() || amount < 1 || amount > 3650 * day / unit->second)
    throw UsageError(
        fmt::format("--expires: wanted a time such as 12h, 30d or 8w, of ten years at most, got '{}'", text));
  return amount * unit->second;
}

std::int64_t now() { return static_cast<std::int64_t>(std::time(nullptr)); }

std::string text_in(const json& predicate, const char* member) {
  const auto found = predicate.find(member);
  return found != predicate.end() && found->is_string() ? visible(found->get<std::string>()) : "(not said)";
}

// What the gate would say of the time; here it is a note.
std::string note_on_time(const json& predicate) {
  try {
    if (attest::time_from(text_in(predicate, "expires")) <= now()) return "it has expired";
    if (attest::time_from(text_in(predicate, "issued")) > now()) return "it was issued after this machine's time";
    return "";
  } catch (const std::invalid_argument& error) {
    return fmt::format("its times cannot be read: {}", error.what());
  }
}

std::string page_of(const std::string& file, const attest::Signed& opened, const std::string& note) {
  const json& says = opened.statement.predicate;
  std::string page = fmt::format("{}: signed by {}\n\n", visible(file), opened.keyid);
  page += fmt::format("  {}  {} {}\n", text_in(says, "verdict"), text_in(says, "kernel"), text_in(says, "candidate"));
  page += fmt::format("  plan {}  preset {}\n", text_in(says, "plan_hash").substr(0, 16), text_in(says, "preset"));
  page += fmt::format("  issued {}, expires {}{}\n\n", text_in(says, "issued"), text_in(says, "expires"),
                      note.empty() ? "" : fmt::format("; NOTE: {}, and a gate refuses it", note));
  for (const attest::Subject& subject : opened.statement.subjects)
    page += fmt::format("  {} {}  {}\n", subject.algorithm, subject.digest, visible(subject.name));
  return page;
}

json json_of(const attest::Signed& opened, const std::string& note) {
  json subjects = json::array();
  for (const attest::Subject& subject : opened.statement.subjects)
    subjects.push_back({{"name", subject.name}, {"algorithm", subject.algorithm}, {"digest", subject.digest}});
  return {{"verified", true},
          {"keyid", opened.keyid},
          {"note", note},
          {"subjects", subjects},
          {"predicate", opened.statement.predicate}};
}

int verify_envelope(const AttestCommands& commands) {
  std::vector<attest::PublicKey> keys;
  for (const std::string& file : commands.keys) keys.push_back(attest::read_public(file));
  try {
    const attest::Signed opened =
        attest::open_envelope(read_whole(commands.file), keys, fmt::format("'{}'", commands.file));
    const std::string note = note_on_time(opened.statement.predicate);
    if (commands.json != "-") print_whole(page_of(commands.file, opened, note));
    if (!commands.json.empty()) write_json(commands.json, json_of(opened, note).dump(1) + "\n");
    return 0;
  } catch (const ClosedPipe&) {
    throw;
  } catch (const std::exception& error) {
    say(fmt::format("refused: {}\n", visible(error.what())));
    if (!commands.json.empty())
      write_json(commands.json, json{{"verified", false}, {"reason", visible(error.what())}}.dump(1) + "\n");
    return refused;
  }
}

// Of either kind, told by what the file says it is.
int print_id(const std::string& file) {
  guard_process();
  const bool is_private = read_whole(file).find("PRIVATE KEY-----") != std::string::npos;
  const attest::PublicKey key = is_private ? attest::public_of(attest::read_private(file)) : attest::read_public(file);
  print_whole(attest::keyid(key) + "\n");
  return 0;
}

int make_key(const std::string& file) {
  guard_process();
  const attest::NewKey made = attest::new_key(file);
  print_whole(fmt::format("{}\n  private: {} (keep it where the signer alone may read it)\n  public:  {}\n", made.keyid,
                          made.private_file.string(), made.public_file.string()));
  return 0;
}

}  // namespace

void add_sign(CLI::App& app, SignOptions& o, bool subjects) {
  app.add_option("--sign", o.key, "sign the verdict with this Ed25519 key (PEM): an envelope beside the report");
  app.add_option("--expires", o.expires, "how long the signature stands, such as 12h, 30d or 8w [30d]");
  app.add_option("--envelope", o.envelope, "where the envelope is written [envelope.json in the report's folder]");
  if (subjects)
    app.add_option("--subject", o.subjects,
                   "a file to bind beside those that were seen to be loaded, or a folder in place of all in it; "
                   "may be given several times")
        ->allow_extra_args(false);
}

std::optional<Signing> signing_from(const SignOptions& o, const std::filesystem::path& folder) {
  if (o.key.empty()) {
    const char* idle = !o.expires.empty()    ? "--expires"
                       : !o.envelope.empty() ? "--envelope"
                       : !o.subjects.empty() ? "--subject"
                                             : nullptr;
    if (idle != nullptr) throw UsageError(fmt::format("{} is about a signature: say --sign KEY.pem too", idle));
    return std::nullopt;
  }
  const std::int64_t valid_seconds = lifetime_from(o.expires.empty() ? "30d" : o.expires);
  guard_process();
  return Signing{attest::read_private(o.key), valid_seconds, given_from(o.subjects),
                 o.envelope.empty() ? folder / "envelope.json" : std::filesystem::path(o.envelope)};
}

std::string signed_result(const Signing& signing, const Result& result, const std::function<Bytes()>& bytes,
                          std::optional<Span> span) {
  try {
    const std::int64_t issued = span ? span->issued : now();
    const std::int64_t expires = issued + signing.valid_seconds;
    return attest::signed_text(statement_of(result, bytes(), issued, span ? std::min(span->last, expires) : expires),
                               signing.key);
  } catch (const std::exception& error) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(signing.envelope, ignored)) std::filesystem::remove(signing.envelope, ignored);
    throw std::runtime_error(fmt::format("nothing was signed: {}", error.what()));
  }
}

void add_attest(CLI::App& app, AttestCommands& commands) {
  commands.key = app.add_subcommand("key", "signing keys: new, id");
  commands.key->require_subcommand(1);
  commands.key_new = commands.key->add_subcommand("new", "make an Ed25519 key: FILE.pem, and FILE.pub.pem beside it");
  commands.key_new->add_option("FILE", commands.file, "where the private key is written; never over a file")
      ->required();
  commands.key_id = commands.key->add_subcommand("id", "the id of a public or private key");
  commands.key_id->add_option("FILE", commands.file, "a key in PEM")->required();

  commands.attest = app.add_subcommand("attest", "signed reports: verify");
  commands.attest->require_subcommand(1);
  commands.verify = commands.attest->add_subcommand(
      "verify", "is the envelope signed by one of the keys, and what does it say: status 0 where it is, 1 where not");
  commands.verify->add_option("ENVELOPE", commands.file, "a file that --sign has written")->required();
  commands.verify->add_option("--key", commands.keys, "a public key (PEM); may be given several times")
      ->required()
      ->allow_extra_args(false);
  commands.verify->add_option("--json", commands.json, "as JSON to this file, or to standard output for -");
}

std::optional<int> run_attest(const AttestCommands& commands) {
  if (*commands.key_new) return make_key(commands.file);
  if (*commands.key_id) return print_id(commands.file);
  if (*commands.verify) return verify_envelope(commands);
  return std::nullopt;
}

}  // namespace fractus::cli
