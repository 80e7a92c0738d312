#include "cli/report.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "attest/envelope.h"
#include "attest/files.h"
#include "attest/statement.h"
#include "attest/strict_json.h"
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

int merge(const ReportOptions& options) {
  std::vector<ResultFile> files;
  for (const std::string& file : options.files) files.push_back(read_result(file));
  for (const ResultFile& file : files)
    if (!file.origin.empty()) say(fmt::format("fractus-verify: {}\n", visible(file.origin)));
  const Result result = merged_files(files);
  const std::string text = visible_lines(to_text(result, false));
  if (options.json == "-")
    say(text);
  else
    print_whole(text);
  if (!options.report.empty()) write_report(options.report, result);
  if (!options.json.empty()) write_json(options.json, to_json(result).dump(1) + "\n");
  return static_cast<int>(result.verdict);
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
    const auto result = statement.predicate.find("result");
    if (result == statement.predicate.end()) throw std::runtime_error(file + ": its statement holds no 'result'");
    return {file, result_from_text(result->dump(), "the result in " + file),
            fmt::format("Taken from the envelope {}, whose signature is not checked here; "
                        "'fractus-verify attest verify' and 'gate' check it.",
                        file)};
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

Result merged_files(const std::vector<ResultFile>& files) {
  std::vector<Shard> shards;
  for (const ResultFile& file : files) shards.push_back({file.name, file.result});
  try {
    return merged(shards);
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

void write_report(const std::filesystem::path& folder, const Result& result) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot make the folder '{}': {}", folder.string(), error.message()));
  write_together({{folder / "report.md", to_markdown(result)},
                  {folder / "report.html", to_html(result)},
                  {folder / "junit.xml", to_junit(result)},
                  {folder / "report.json", to_json(result).dump(1) + "\n"}});
}

}  // namespace fractus::cli
