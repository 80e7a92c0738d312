#include "harness/fuzz.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

std::string text_of(const FuzzResult& result, const std::string& name) {
  std::string text;
  if (result.failure) {
    const PropertyResult& failure = *result.failure;
    text +=
        fmt::format("{} breaks at {}\n  {}\n", failure.name, label(failure.witness->smallest), failure.finding->text);
    for (const std::string& note : failure.notes) text += fmt::format("  {}\n", note);
    if (!failure.witness->replay.empty()) text += fmt::format("  {}\n", failure.witness->replay);
  }
  text += "cases by property\n";
  for (const auto& [property, cases] : result.by_property) text += fmt::format("  {:<10} {:>8}\n", property, cases);
  text += "cases by class\n";
  for (const auto& [name_of_class, cases] : result.by_class.cases)
    if (cases > 0) text += fmt::format("  {:<28} {:>8}\n", name_of_class, cases);
  text += "worst error over bound\n";
  for (const auto& [tensor, ratio] : result.worst_ratio) text += fmt::format("  {:<12} {:>8.3g}\n", tensor, ratio);
  text += fmt::format("{}  {}: {} cases, {} elements, {} without a bound, {}\n",
                      result.failure ? result.failure->verdict : "NOTHING FOUND", name, result.cases, result.elements,
                      result.undecidable, time_text(result.seconds));
  return text;
}

nlohmann::json json_of(const FuzzResult& result, const Plan& plan) {
  nlohmann::json json{{"verdict", result.failure ? result.failure->verdict : "NOTHING FOUND"},
                      {"kernel", plan.kernel},
                      {"candidate", plan.candidate},
                      {"seed", plan.generation.seed},
                      {"cases", result.cases},
                      {"by_property", result.by_property},
                      {"by_class", result.by_class.cases},
                      {"worst_ratio", result.worst_ratio},
                      {"elements", result.elements},
                      {"undecidable", result.undecidable},
                      {"seconds", result.seconds}};
  if (result.failure) {
    json["finding"] = to_json(*result.failure->finding);
    json["smallest"] = result.failure->witness->smallest;
    json["fixture"] = result.failure->witness->fixture;
    json["replay"] = result.failure->witness->replay;
  }
  return json;
}

}  // namespace

int fuzz(const Options& options) {
  if (options.candidate.empty()) throw UsageError("fuzz: no candidate: name one with --candidate");
  const std::vector<std::string> only = properties_from(options.only), waived = split("--waive", options.waive);
  FuzzSettings settings;
  if (!options.budget.empty()) settings.budget = duration_from(options.budget);
  settings.most_cases = options.cases;
  settings.waived = waived;
  settings.fixtures = root() / "fixtures" / "found";

  Workshop workshop;
  Chosen chosen = choose(workshop, options.kernel, options.candidate);
  require_fit(chosen, /*forward_only=*/false, {});
  require_waivers(waived, *chosen.driver->contract);
  std::optional<Chosen> recomputed = choose_recomputed(workshop, chosen, options.recompute_of);
  require_applying(only, chosen);
  const Plan plan = make_plan({.driver = chosen.driver,
                               .candidate = chosen.form,
                               .settings = chosen.settings,
                               .preset = "smoke",
                               .seed = options.seed,
                               .dtypes = dtypes_from(options.dtype),
                               .only = only},
                              workshop.forms());
  load(workshop, chosen);
  load_recomputed(workshop, recomputed);
  if (!chosen.form.trouble.empty()) {
    print_whole(fmt::format("{}\nFAILED  {}\n", chosen.form.trouble, chosen.form.name));
    return static_cast<int>(Verdict::failed);
  }

  const bool terminal = is_terminal(STDERR_FILENO);
  double shown_at = 0;
  settings.progress = [&](std::int64_t cases, double seconds) {
    if (seconds - shown_at < (terminal ? 0.2 : 30)) return;
    shown_at = seconds;
    say(fmt::format("{}{} cases, {}{}", terminal ? "\r\033[K" : "", cases, time_text(std::round(10 * seconds) / 10),
                    terminal ? "" : "\n"));
  };
  FuzzResult result;
  try {
    result = fuzz(workshop, *chosen.driver, plan, settings);
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
  if (terminal) say("\r\033[K");
  if (options.json != "-") try_to_write("the text", [&] { print_whole(text_of(result, chosen.form.name)); });
  if (!options.json.empty())
    try_to_write("the JSON result", [&] { write_json(options.json, json_of(result, plan).dump(1) + "\n"); });
  if (!result.failure) return 0;
  return static_cast<int>(result.failure->finding->broken ? Verdict::failed : Verdict::different);
}

}  // namespace fractus::cli
