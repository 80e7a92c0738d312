// Keys and signatures on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attest/keys.h"
#include "cli/commands.h"
#include "harness/subjects.h"

namespace CLI {
class App;
}

namespace fractus::cli {

void add_sign(CLI::App& app, SignOptions& o, bool subjects);

// What signing needs, looked at before a run begins: a wrong key after minutes of work would be a waste.
struct Signing {
  attest::PrivateKey key;
  std::int64_t valid_seconds = 0;
  std::vector<Given> given;  // the digests of --subject as they are now
  std::filesystem::path envelope;
};

// Absent without --sign. `folder` is the report's, where the envelope lies unless --envelope says another place. Throws
// UsageError, and std::runtime_error where the key or a subject cannot be used.
std::optional<Signing> signing_from(const SignOptions& o, const std::filesystem::path& folder);

// How a merge signs what was judged earlier, in seconds since 1970: it gets no younger by it, and stands no longer.
struct Span {
  std::int64_t issued, last;
};

// The text of the envelope, issued now, or as its span says. Throws where the bytes are not
// those that were loaded; an envelope of an earlier run is then removed, since it would stand beside the report of this
// one.
std::string signed_result(const Signing& signing, const Result& result, const std::function<Bytes()>& bytes,
                          std::optional<Span> span = std::nullopt);

// The commands `key` and `attest`. Declared once; `run` is absent where the line names neither of them.
struct AttestCommands {
  std::string file, json;
  std::vector<std::string> keys;
  CLI::App *key = nullptr, *key_new = nullptr, *key_id = nullptr, *attest = nullptr, *verify = nullptr;
};
void add_attest(CLI::App& app, AttestCommands& commands);
std::optional<int> run_attest(const AttestCommands& commands);

}  // namespace fractus::cli
