#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "harness/judge.h"
#include "properties/over_field.h"
#include "reports/facts.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

using nlohmann::json;

std::vector<std::string> rational_kernels() {
  std::vector<std::string> names;
  for (const std::string& name : kernel_names(Purpose::identity))
    if (find_property("identity")->applies(*find_driver(name))) names.push_back(name);
  return names;
}

struct Answered {
  std::string word;
  int status;
  std::string text;
};

// What the one property's result means for who asked for it alone.
Answered answered(const Result& result, const PropertyResult& identity) {
  if (!result.trouble.empty()) return {"FAILED", static_cast<int>(Verdict::failed), result.trouble};
  if (identity.finding) return {"DIFFERENT", static_cast<int>(Verdict::different), identity.finding->text};
  if (!identity.algebra.empty())
    return {"UNDECIDED", static_cast<int>(Verdict::undecided),
            identity.algebra + "; no float call was found that shows it beyond what rounding may do"};
  if (identity.not_algebraic)
    return {"NOT ALGEBRAIC", static_cast<int>(Verdict::undecided),
            fmt::format("no claim: {}", fractus::text_of(*identity.not_algebraic))};
  if (identity.verdict != "PASSED") return {"UNDECIDED", static_cast<int>(Verdict::undecided), identity.reason};
  return {"IDENTICAL", 0, escape_text(identity)};
}

std::string text_of(const Result& result, const PropertyResult& identity, const Answered& answer) {
  std::string text = fmt::format("{} {}", result.kernel, result.candidate);
  for (const auto& [parameter, value] : result.settings) text += fmt::format(" {}={}", parameter, value);
  text +=
      fmt::format("\nplan {}  seed {}\n\n  {} of {} cases, {} elements of outputs and gradients equal\n",
                  result.plan_hash.substr(0, 16), result.seed, identity.cases, identity.planned, identity.bit_equal);
  if (!answer.text.empty()) text += fmt::format("  {}\n", answer.text);
  for (const std::string& claim : claims_of(identity)) text += fmt::format("  {}\n", claim);
  for (const std::string& note : identity.notes) text += fmt::format("  {}\n", note);
  if (identity.witness) {
    text += fmt::format("  a float call that shows it: {}\n", label(identity.witness->smallest));
    if (!identity.witness->replay.empty()) text += fmt::format("    {}\n", identity.witness->replay);
  }
  if (const auto audit = audit_lines(result); !audit.empty()) {
    text += fmt::format("  {}:\n", audit_title);
    for (const std::string& line : audit) text += fmt::format("    {}\n", visible(line));
  }
  return text +
         fmt::format("\n{}  {} {}, {}\n", answer.word, result.kernel, result.candidate, time_text(result.seconds));
}

json json_of(const Result& result, const Answered& answer) {
  json all = to_json(result);
  return {{"format", "fractus-verify identity 1"},
          {"answer", answer.word},
          {"text", answer.text},
          {"kernel", result.kernel},
          {"candidate", result.candidate},
          {"settings", result.settings},
          {"plan_hash", result.plan_hash},
          {"seed", result.seed},
          {"seconds", result.seconds},
          {"identity", all.at("properties").at(0)},
          {"audit", all.at("audit")}};
}

}  // namespace

int identity(const Options& options) {
  Workshop workshop;
  Chosen chosen = choose(workshop, options.kernel, options.candidate, "form", Purpose::identity);
  if (!find_property("identity")->applies(*chosen.driver))
    throw UsageError(fmt::format("identity: the definition of {} is no rational function; it is one for {}",
                                 chosen.driver->contract->kernel, fmt::join(rational_kernels(), ", ")));
  const Plan plan = make_plan({.driver = chosen.driver,
                               .candidate = chosen.form,
                               .settings = chosen.settings,
                               .preset = options.preset,
                               .seed = options.seed,
                               .dtypes = dtypes_from(options.dtype),
                               .only = {"identity"}},
                              workshop.forms());
  load(workshop, chosen);

  ProgressLine progress;
  JudgeSettings settings;
  settings.partial = true;
  settings.fixtures = root() / "fixtures" / "found";
  settings.progress = [&progress](const Progress& p) { progress(p); };
  const Result result = judge(workshop, *chosen.driver, plan, settings);
  progress.clear();

  const PropertyResult& only = result.properties.front();
  const Answered answer = answered(result, only);
  const std::string text = text_of(result, only, answer);
  if (options.json == "-")
    say(text);
  else
    print_whole(text);
  if (!options.json.empty())
    try_to_write("the JSON result", [&] { write_json(options.json, json_of(result, answer).dump(1) + "\n"); });
  return answer.status;
}

}  // namespace fractus::cli
