#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "harness/fixture.h"
#include "reports/result.h"
#include "reports/words.h"

namespace fractus::cli {

namespace {

// A setting that the form does not have would be left out, and something else replayed than the file says.
void require_settings(const std::string& file, const char* field, const std::map<std::string, std::int64_t>& settings,
                      const FormInfo& form) {
  for (const auto& [setting, value] : settings)
    if (!form.settings.contains(setting))
      throw UsageError(fmt::format("'{}' is not a usable fixture: field '{}': {} has no setting '{}'", file, field,
                                   form.name, setting));
}

}  // namespace

int replay(const Options& options) {
  Fixture fixture;
  try {
    fixture = read_fixture(options.file);
  } catch (const std::runtime_error& e) {
    throw UsageError(e.what());
  }
  Workshop workshop;
  const bool other = !options.candidate.empty();
  Chosen chosen = choose(workshop, fixture.c.kernel, other ? options.candidate : fixture.candidate);
  std::optional<Chosen> recomputed = choose_recomputed(workshop, chosen, fixture.recomputes);
  load(workshop, chosen);
  load_recomputed(workshop, recomputed);
  if (!chosen.form.trouble.empty()) {
    print_whole(fmt::format("{}\nFAILED  {}\n", chosen.form.trouble, chosen.form.name));
    return static_cast<int>(Verdict::failed);
  }
  if (const FormInfo* own = workshop.find_form(fixture.c.kernel, fixture.candidate)) {
    require_settings(options.file, "settings", fixture.settings, *own);
    require_settings(options.file, "settings' in 'case", fixture.c.settings, *own);
  }
  Attached candidate(workshop, chosen.form, other ? chosen.settings : fixture.settings);

  std::optional<Finding> finding;
  try {
    finding = replayed(*chosen.driver, fixture, candidate);
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("'{}' is not a usable fixture: in 'case': {}", options.file, e.what()));
  }

  const Verdict verdict = !finding ? Verdict::equivalent : finding->broken ? Verdict::failed : Verdict::different;
  std::string text = fmt::format("{} {}\n  {}\n", fixture.c.kernel, chosen.form.name, visible(label(fixture.c)));
  if (finding) {
    text += fmt::format("  {}\n", finding->text);
    if (!finding->index.empty())
      text += fmt::format(
          "  at        {}{}\n  expected  {:.17g}\n  radius    {:.3g}\n  tolerance {:.3g}\n  got       {:.17g}\n",
          finding->tensor, to_string(finding->index), finding->expected, finding->radius, finding->tolerance,
          finding->got);
  } else {
    text += "  it passes now: nothing differs beyond the certified bound\n";
  }
  text += fmt::format("{}\n", finding ? (finding->broken ? "FAILED" : "DIFFERENT") : "PASSED");
  if (options.json != "-") try_to_write("the text", [&] { print_whole(text); });
  if (!options.json.empty()) {
    nlohmann::json json{{"verdict", finding ? std::string(name(verdict)) : "PASSED"},
                        {"case", fixture.c},
                        {"candidate", chosen.form.name}};
    if (finding) json["finding"] = to_json(*finding);
    try_to_write("the JSON result", [&] { write_json(options.json, json.dump(1) + "\n"); });
  }
  return static_cast<int>(verdict);
}

}  // namespace fractus::cli
