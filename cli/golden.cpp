#include "harness/golden.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/words.h"

namespace fractus::cli {

int golden(const Options& options) {
  const Workshop workshop;
  GoldenResult result;
  try {
    result = fractus::golden(workshop, options.folder);
  } catch (const std::runtime_error& e) {
    throw UsageError(fmt::format("golden: {}", e.what()));
  }
  if (result.lines.empty())
    throw UsageError(
        fmt::format("golden: '{}' holds no case of a kernel of this build, so nothing was checked", options.folder));
  nlohmann::json json{{"passed", result.passed()}, {"skipped", result.skipped}, {"cases", nlohmann::json::array()}};
  std::string text;
  for (const GoldenLine& line : result.lines) {
    text += fmt::format("  {:<6} {:<22} {:<22} {:.3g} of the bound{}{}\n", line.passed ? "passed" : "FAILED",
                        visible(line.file), line.what, line.worst_ratio, line.text.empty() ? "" : "  ", line.text);
    json["cases"].push_back({{"file", line.file},
                             {"what", line.what},
                             {"passed", line.passed},
                             {"worst_ratio", line.worst_ratio},
                             {"text", line.text}});
  }
  for (const std::string& file : result.skipped)
    text += fmt::format("  skipped {}: this build has no such kernel\n", visible(file));
  text += fmt::format("{}  {} comparisons, {} files skipped\n", result.passed() ? "PASSED" : "DIFFERENT",
                      result.lines.size(), result.skipped.size());
  if (options.json != "-") try_to_write("the text", [&] { print_whole(text); });
  if (!options.json.empty()) try_to_write("the JSON result", [&] { write_json(options.json, json.dump(1) + "\n"); });
  return result.passed() ? 0 : 1;
}

}  // namespace fractus::cli
