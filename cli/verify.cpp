#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "attest/files.h"
#include "cli/attest.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "harness/judge.h"

namespace fractus::cli {
int verify(const Options& options) {
  if (options.candidate.empty())
    throw UsageError(
        "no candidate: name one with --candidate, for instance --candidate chunked; './fractus-verify list' shows "
        "them");
  const std::vector<std::string> only = properties_from(options.only), skip = properties_from(options.skip, "--skip"),
                                 waived = split("--waive", options.waive);
  const auto dtypes = dtypes_from(options.dtype);
  JudgeSettings settings;
  if (!options.budget.empty()) settings.budget = duration_from(options.budget);

  Workshop workshop;
  Chosen chosen = choose(workshop, options.kernel, options.candidate);
  require_fit(chosen, options.forward_only, dtypes);
  if (options.forward_only && only == std::vector<std::string>{"gradients"})
    throw UsageError("--forward-only leaves nothing of --only gradients");
  require_waivers(waived, *chosen.driver->contract);
  std::optional<Chosen> recomputed = choose_recomputed(workshop, chosen, options.recompute_of);
  require_applying(only, chosen);
  require_applying(skip, chosen, "--skip");

  PlanRequest request{.driver = chosen.driver,
                      .candidate = chosen.form,
                      .settings = chosen.settings,
                      .preset = options.preset,
                      .seed = options.seed,
                      .dtypes = dtypes,
                      .only = only,
                      .skip = skip,
                      .forward_only = options.forward_only};
  std::optional<Chosen> reference;
  if (!options.reference.empty()) {
    reference = choose(workshop, chosen.driver->contract->kernel, options.reference, "reference");
    require_fit(*reference, options.forward_only, dtypes);
    request.reference = reference->form;
    request.reference_settings = reference->settings;
  }
  const Plan plan = make_plan(request, workshop.forms());
  const std::filesystem::path folder =
      options.report.empty()
          ? root() / "build" / "report" / file_name(fmt::format("{}-{}", plan.kernel, plan.candidate))
          : std::filesystem::path(options.report);
  if (plan.cases.empty()) throw UsageError("--skip leaves no case to try; leave some property in the plan");
  if (plan.reference == plan.candidate && plan.reference_settings == plan.settings)
    throw UsageError(fmt::format("--reference: '{}' is the candidate itself; wanted another form, or other parameters",
                                 options.reference));
  say(fmt::format("plan {}: {} cases, fixed before the candidate runs\n", plan.hash.substr(0, 16), plan.cases.size()));

  const std::optional<Signing> signing = signing_from(options.sign, folder);
  load(workshop, chosen);
  load_recomputed(workshop, recomputed);
  if (reference) load(workshop, *reference);

  ProgressLine progress;
  settings.waived = waived;
  settings.partial = !only.empty() || !skip.empty();
  settings.fixtures = root() / "fixtures" / "found";
  settings.progress = [&progress](const Progress& p) { progress(p); };
  const Result result = judge(workshop, *chosen.driver, plan, settings);
  progress.clear();

  const bool json_on_stdout = options.json == "-";
  try_to_write("the text", [&] {
    const std::string text = to_text(result, is_terminal(json_on_stdout ? STDERR_FILENO : STDOUT_FILENO));
    if (json_on_stdout)
      say(text);
    else
      print_whole(text);
  });
  std::string envelope, unsigned_because;
  if (signing) try {
      envelope = signed_result(*signing, result, [&] { return bytes_of(workshop, plan, signing->given); });
    } catch (const std::exception& error) {
      unsigned_because = error.what();
    }
  const auto write = [&] {
    write_report(folder, result, signing ? signing->envelope : "", envelope);
    say(fmt::format("report: {}\n", (folder / "report.md").string()));
    if (!envelope.empty()) say(fmt::format("envelope: {}\n", signing->envelope.string()));
  };
  // A pipeline that asked for a signature must not go on without one.
  if (signing && unsigned_because.empty())
    write();
  else
    try_to_write("the report", write);
  if (!options.json.empty())
    try_to_write("the JSON result", [&] { write_json(options.json, to_json(result).dump(1) + "\n"); });
  if (!unsigned_because.empty()) throw std::runtime_error(unsigned_because);
  return static_cast<int>(result.verdict);
}

}  // namespace fractus::cli
