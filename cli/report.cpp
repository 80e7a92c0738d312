#include "cli/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "attest/envelope.h"
#include "attest/files.h"
#include "attest/statement.h"
#include "attest/strict_json.h"
#include "attest/time.h"
#include "cli/attest.h"
#include "cli/commands.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/read.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

std::string rendered(const Result& result, const std::string& as, const std::string& origin) {
  if (as == "md") return to_markdown(result, origin);
  if (as == "html") return to_html(result, origin);
  if (as == "junit") return to_junit(result, origin);
  if (as == "json") return to_json(result).dump(1) + "\n";
  // A result that somebody made by hand may hold what moves the cursor of a terminal.
  return visible_lines(to_text(result, false)) + (origin.empty() ? "" : visible(origin) + "\n");
}

int render(const ReportOptions& options) {
  const ResultFile file = read_result(options.file);
  if (!file.origin.empty()) say(fmt::format("fractus-verify: {}\n", visible(file.origin)));
  write_json(options.output.empty() ? "-" : options.output, rendered(file.result, options.as, file.origin));
  return 0;
}

// The envelope of shards that were put together. It stands no longer than the first of theirs: the runs do not become
// younger by being put together.
std::string signed_merge(const Signing& signing, const std::vector<ResultFile>& files, const Result& result) {
  Span span{files.front().issued, files.front().expires};
  for (const ResultFile& file : files) {
    span.issued = std::min(span.issued, file.issued);
    span.last = std::min(span.last, file.expires);
  }
  return signed_result(
      signing, result, [&] { return *files.front().bytes; }, span);
}

int merge(const ReportOptions& options) {
  if (!options.sign.key.empty() && options.report.empty() && options.sign.envelope.empty())
    throw UsageError("--sign: say where the envelope goes, with --envelope FILE or --report FOLDER");
  const std::optional<Signing> signing = signing_from(options.sign, options.report);
  std::vector<ResultFile> files;
  for (const std::string& file : options.files)
    files.push_back(signing ? read_signed_result(file, attest::public_of(signing->key)) : read_result(file));
  for (const ResultFile& file : files)
    if (!file.origin.empty()) say(fmt::format("fractus-verify: {}\n", visible(file.origin)));
  const Result result = merged_files(files);
  const std::string text = visible_lines(to_text(result, false));
  if (options.json == "-")
    say(text);
  else
    print_whole(text);
  const std::string envelope = signing ? signed_merge(*signing, files, result) : "";
  if (!options.report.empty())
    write_report(options.report, result, signing ? signing->envelope : "", envelope);
  else if (signing)
    write_whole(signing->envelope, envelope);
  if (signing) say(fmt::format("envelope: {}\n", signing->envelope.string()));
  if (!options.json.empty()) write_json(options.json, to_json(result).dump(1) + "\n");
  return static_cast<int>(result.verdict);
}

Result result_in(const attest::Statement& statement, const std::string& file) {
  const auto result = statement.predicate.find("result");
  if (result == statement.predicate.end()) throw std::runtime_error(file + ": its statement holds no 'result'");
  return result_from_text(result->dump(), "the result in " + file);
}

}  // namespace

CLI::App* declare_report(CLI::App& app, ReportOptions& options) {
  CLI::App* report = app.add_subcommand("report", "other views of a result, and shards of one plan put together");
  report->require_subcommand(1);
  CLI::App* render = report->add_subcommand("render", "a JSON result, or the one in an envelope, as another view");
  render->add_option("FILE", options.file, "a result of --json, a report.json or an envelope")->required();
  render->add_option("--as", options.as, "md, html, junit, json or text")
      ->required()
      ->check(CLI::IsMember({"md", "html", "junit", "json", "text"}));
  render->add_option("-o,--output", options.output, "to this file; to standard output where absent, or for -");
  CLI::App* merge = report->add_subcommand(
      "merge", "shards of one plan, which --only and --skip made, as one result; ends in its verdict's status");
  merge->add_option("FILE", options.files, "results or envelopes of the shards")->required();
  merge->add_option("--json", options.json, "the result as JSON to this file, or to standard output for -");
  merge->add_option("--report", options.report, "folder for report.md, report.html, junit.xml and report.json");
  add_sign(*merge, options.sign, /*subjects=*/false);
  return report;
}

int report(const CLI::App& command, const ReportOptions& options) {
  return command.got_subcommand("render") ? render(options) : merge(options);
}

ResultFile read_result(const std::string& file) {
  require_file(file);
  try {
    const std::string text = read_whole(file);
    const nlohmann::json json = attest::strict_json(text, file);
    if (!json.is_object() || !json.contains("payloadType")) return {file, result_from_text(text, file), ""};
    const attest::Statement statement =
        attest::statement_from(attest::envelope_from(text, file).payload, "the statement in " + file);
    return {file, result_in(statement, file),
            fmt::format("Taken from the envelope {}, whose signature is not checked here; "
                        "'fractus-verify attest verify' and 'gate' check it.",
                        file),
            bytes_in(statement)};
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

ResultFile read_signed_result(const std::string& file, const attest::PublicKey& key) {
  require_file(file);
  try {
    // A result in a file, or an envelope of somebody else's, could say anything, and would be signed as seen.
    const attest::Statement statement = attest::open_envelope(read_whole(file), {&key, 1}, file).statement;
    const std::string expires = statement.predicate.value("expires", ""),
                      issued = statement.predicate.value("issued", "");
    const std::int64_t now = std::time(nullptr);
    if (attest::time_from(expires) <= now || attest::time_from(issued) > now)
      throw std::runtime_error(fmt::format(
          "{}: issued {}, expires {}, and it is {}: only what stands now is signed anew; run the shard again", file,
          issued, expires, attest::text_of_time(now)));
    return {file,
            result_in(statement, file),
            "",
            bytes_in(statement),
            attest::time_from(issued),
            attest::time_from(expires)};
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("--sign takes envelopes that the same key has signed. {}", error.what()));
  }
}

Result merged_files(const std::vector<ResultFile>& files) {
  const ResultFile* bound = nullptr;
  for (const ResultFile& file : files) {
    if (!file.bytes) continue;
    if (bound != nullptr && *bound->bytes != *file.bytes)
      throw UsageError(fmt::format(
          "{} and {} are about different bytes of the candidate or the reference: {} and {}. Run the shards "
          "on the same files; where one imports more of them than another, bind their folder with --subject",
          bound->name, file.name, text_of(*bound->bytes), text_of(*file.bytes)));
    bound = &file;
  }
  std::vector<Shard> shards;
  for (const ResultFile& file : files) shards.push_back({file.name, file.result});
  try {
    return merged(shards);
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

void write_report(const std::filesystem::path& folder, const Result& result, const std::filesystem::path& envelope,
                  const std::string& signed_text) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot make the folder '{}': {}", folder.string(), error.message()));
  std::vector<std::pair<std::filesystem::path, std::string>> files{
      {folder / "report.md", to_markdown(result)},
      {folder / "report.html", to_html(result)},
      {folder / "junit.xml", to_junit(result)},
      {folder / "report.json", to_json(result).dump(1) + "\n"}};
  if (!signed_text.empty()) files.emplace_back(envelope, signed_text);
  write_together(files);
}

}  // namespace fractus::cli
