#include "cli/battery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

using nlohmann::json;

bool is_control(const std::string& function) { return function.starts_with("correct_"); }

std::vector<std::filesystem::path> files_of(const std::string& given) {
  std::error_code error;
  if (!std::filesystem::is_directory(given, error)) {
    require_file(given);
    return {given};
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(given))
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) throw UsageError(fmt::format("no .py file in '{}'", given));
  return files;
}

std::vector<std::string> all_but_power() {
  std::vector<std::string> names;
  for (const Property& property : properties()) names.push_back(property.name);
  return names;
}

struct Totals {
  std::int64_t mutants = 0, killed = 0, controls = 0, accepted = 0;
  bool good() const { return killed == mutants && accepted == controls; }
};

void count(Totals& totals, const BatteryResult& result) {
  for (const Tried& tried : result.functions) {
    (is_mutant(function_of(tried)) ? totals.mutants : totals.controls) += 1;
    if (is_mutant(function_of(tried)))
      totals.killed += killed(tried) ? 1 : 0;
    else
      totals.accepted += accepted(tried) ? 1 : 0;
  }
}

// A row a function, a column a property: X where it was caught first, a dot where it had passed before.
std::string matrix(const Plan& plan, const BatteryResult& result) {
  std::string text = fmt::format("  {:<46} {:<10}", "", "");
  for (const std::string& property : plan.properties) text += fmt::format(" {:<9}", property);
  text += fmt::format(" {:>8}  smallest witness\n", "time");
  for (const Tried& tried : result.functions) {
    text += fmt::format("  {:<46} {:<10}", function_of(tried), name(tried.verdict));
    const bool was_caught = killed(tried);
    bool behind = tried.property == "loading";
    for (const std::string& property : plan.properties) {
      const bool here = was_caught && property == tried.property;
      text += fmt::format(" {:<9}", here ? "X" : behind ? "" : ".");
      behind = behind || here;
    }
    text += fmt::format(" {:>8}  {}\n", time_text(tried.seconds),
                        tried.witness ? label(tried.witness->smallest) : visible(tried.reason));
  }
  return text;
}

// What is not as its name says.
std::string surprises(const BatteryResult& result) {
  std::string text;
  for (const Tried& tried : result.functions) {
    const bool mutant = is_mutant(function_of(tried));
    if (mutant ? killed(tried) : accepted(tried)) continue;
    text += fmt::format("  {} {}{}\n", function_of(tried), mutant ? "survives" : "is refused",
                        tried.reason.empty() ? "" : fmt::format(": {}", visible(tried.reason)));
    if (!tried.summary.empty()) text += fmt::format("    it says: {}\n", tried.summary);
    if (tried.witness && !tried.witness->replay.empty()) text += fmt::format("    {}\n", tried.witness->replay);
  }
  for (const std::string& complaint : result.complaints) text += fmt::format("  {}\n", complaint);
  return text;
}

json json_of(const Source& source, const Plan& plan, const BatteryResult& result) {
  json list = json::array();
  for (const Tried& tried : result.functions) {
    json entry{{"name", function_of(tried)}, {"file", source.file.string()},
               {"kernel", plan.kernel},      {"kind", is_mutant(function_of(tried)) ? "mutant" : "control"},
               {"summary", tried.summary},   {"verdict", name(tried.verdict)},
               {"property", tried.property}, {"reason", tried.reason},
               {"cases", tried.cases},       {"seconds", tried.seconds},
               {"plan_hash", plan.hash}};
    if (tried.finding) entry["finding"] = to_json(*tried.finding);
    if (tried.witness)
      entry.update({{"smallest", tried.witness->smallest},
                    {"fixture", tried.witness->fixture},
                    {"replay", tried.witness->replay}});
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

bool is_mutant(const std::string& function) { return function.starts_with("mutant_"); }

std::string function_of(const Tried& tried) { return outside::spec_from(tried.candidate)->name; }

bool killed(const Tried& tried) { return tried.finding.has_value(); }
bool accepted(const Tried& tried) { return tried.verdict == Verdict::equivalent; }

std::vector<Source> sources(Workshop& workshop, const Options& options) {
  if (!options.kernel.empty() && find_driver(options.kernel) == nullptr)
    unknown("kernel", options.kernel, kernel_names());
  if (!options.kernel.empty()) require_purpose(*find_driver(options.kernel)->contract, Purpose::verdict);
  const std::vector<std::filesystem::path> files = files_of(options.file);
  std::vector<Source> all;
  for (const std::filesystem::path& file : files) {
    const std::string kernel = options.kernel.empty() ? file.stem().string() : options.kernel;
    const Driver* driver = find_driver(kernel);
    if (driver != nullptr && driver->contract->only_identity) driver = nullptr;
    if (driver == nullptr && files.size() == 1)
      throw UsageError(fmt::format("no kernel is named '{}' as the file '{}' is; say which with --kernel: {}", kernel,
                                   file.string(), fmt::join(kernel_names(), ", ")));
    if (driver == nullptr) {
      say(fmt::format("skipped: {}, since this build has no kernel '{}'\n", visible(file.string()), visible(kernel)));
      continue;
    }
    Source source{file, driver, {}};
    std::vector<std::string> names;
    try {
      for (const outside::Outlined& one : workshop.outline(file)) names.push_back(one.name);
    } catch (const UnreadableSource& error) {
      throw UsageError(error.what());
    }
    for (const std::string& name : names)
      if (is_control(name)) source.functions.push_back(name);
    for (const std::string& name : names)
      if (is_mutant(name)) source.functions.push_back(name);
    if (source.functions.empty())
      throw UsageError(fmt::format("'{}' has no top-level function named mutant_* or correct_*", file.string()));
    all.push_back(std::move(source));
  }
  if (all.empty()) throw UsageError(fmt::format("no file of '{}' is named after a kernel", options.file));
  return all;
}

Ran run(Workshop& workshop, const Source& source, const Options& options) {
  BatterySettings settings;
  if (!options.budget.empty()) settings.budget = duration_from(options.budget);
  settings.waived = split("--waive", options.waive);
  settings.fixtures = root() / "fixtures" / "found";
  require_waivers(settings.waived, *source.driver->contract);
  const std::string& kernel = source.driver->contract->kernel;
  Ran ran{.plan = make_plan({.driver = source.driver,
                             .candidate = {.kernel = kernel, .name = source.file.string(), .role = "candidate"},
                             .preset = options.preset,
                             .seed = options.seed,
                             .dtypes = dtypes_from(options.dtype),
                             .only = all_but_power()},
                            workshop.forms())};
  say(fmt::format("{}: {} functions, plan {}: {} cases, fixed before they run\n", visible(source.file.string()),
                  source.functions.size(), ran.plan.hash.substr(0, 16), ran.plan.cases.size()));
  std::vector<std::string> candidates;
  for (const std::string& function : source.functions)
    candidates.push_back(fmt::format("{}:{}", source.file.string(), function));
  ProgressLine progress;
  settings.progress = [&progress](const Progress& p) { progress(p); };
  ran.result = fractus::battery(workshop, *source.driver, ran.plan, candidates, settings);
  progress.clear();
  return ran;
}

int battery(const Options& options) {
  const std::vector<std::string> waived = split("--waive", options.waive);
  Workshop workshop;
  Totals totals;
  json functions = json::array();
  bool cut = false, sound = true;
  double seconds = 0;
  for (const Source& source : sources(workshop, options)) {
    const auto [plan, result] = run(workshop, source, options);
    count(totals, result);
    for (json& function : json_of(source, plan, result)) functions.push_back(std::move(function));
    cut = cut || result.out_of_budget;
    sound = sound && result.complaints.empty();
    seconds += result.seconds;
    if (options.json != "-")
      try_to_write("the text", [&] {
        print_whole(fmt::format("{}, plan {}, seed {}, {}\n{}{}", plan.kernel, plan.hash.substr(0, 16),
                                plan.generation.seed, plan.preset, matrix(plan, result), surprises(result)));
      });
  }
  const Verdict verdict =
      !sound || !totals.good() ? (cut && sound ? Verdict::undecided : Verdict::mistrusted) : Verdict::equivalent;
  if (options.json != "-")
    try_to_write("the text", [&] {
      print_whole(fmt::format("{} of {} mutants killed, {} of {} controls accepted, {}\n", totals.killed,
                              totals.mutants, totals.accepted, totals.controls, time_text(seconds)));
    });
  if (!options.json.empty()) {
    const json all{{"functions", functions},
                   {"mutants", {{"killed", totals.killed}, {"total", totals.mutants}}},
                   {"controls", {{"accepted", totals.accepted}, {"total", totals.controls}}},
                   {"waived", waived},
                   {"seconds", seconds}};
    try_to_write("the JSON result", [&] { write_json(options.json, all.dump(1) + "\n"); });
  }
  return static_cast<int>(verdict);
}

}  // namespace fractus::cli
