// `report`: other views of a result that is in a file, and shards of one plan put together.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "reports/merge.h"
#include "reports/result.h"
#include "reports/statement.h"

namespace fractus::cli {

struct ReportOptions {
  std::string file, as, output;    // render
  std::vector<std::string> files;  // merge
  std::string json, report;
  SignOptions sign;  // merge
};

CLI::App* declare_report(CLI::App& app, ReportOptions& options);
int report(const CLI::App& command, const ReportOptions& options);

// The result in a JSON file, or in an envelope's statement, whose signature is not checked; `origin` says so then.
// Throws UsageError where the file cannot be read or holds no result.
struct ResultFile {
  std::string name;
  Result result;
  std::string origin;                    // a sentence for the page; empty: the file is a result itself
  std::optional<Bytes> bytes;            // of an envelope's statement
  std::int64_t issued = 0, expires = 0;  // of the same, where `key` has signed it
};
ResultFile read_result(const std::string& file);

// The same of an envelope that the key has signed and that still stands.
ResultFile read_signed_result(const std::string& file, const attest::PublicKey& key);

// Shards put together. Throws UsageError where they are none of one plan.
Result merged_files(const std::vector<ResultFile>& files);

// report.md, report.html, junit.xml and report.json in a folder, which is made where it is not there, and with them the
// envelope, where its text is not empty: all of this result or none. Throws std::runtime_error.
void write_report(const std::filesystem::path& folder, const Result& result, const std::filesystem::path& envelope = {},
                  const std::string& signed_text = {});

}  // namespace fractus::cli
