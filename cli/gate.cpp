#include "cli/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "attest/digest.h"
#include "attest/files.h"
#include "cli/commands.h"
#include "cli/gate_machine.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "gate/admission.h"
#include "gate/ladder.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

using nlohmann::json;

void require_whole(const GateOptions& options) {
  const bool any = !options.envelope.empty() || !options.artifacts.empty();
  if (any && (options.policy.empty() || options.envelope.empty() || options.artifacts.empty()))
    throw UsageError("an envelope is judged with all three: --policy FILE, --envelope FILE and --artifact PATH...");
  if (!options.policy_sha256.empty() && options.policy.empty())
    throw UsageError("--policy-sha256 is that of a policy; name it with --policy");
  if (!options.policy.empty() && !any && options.heart.ladder.empty())
    throw UsageError("--policy says which envelopes are let through; give one with --envelope, or a --ladder of them");
  if (!options.policy_sha256.empty() &&
      (options.policy_sha256.size() != 64 ||
       options.policy_sha256.find_first_not_of("0123456789abcdef") != std::string::npos))
    throw UsageError(fmt::format("--policy-sha256: wanted 64 lower-case hex digits, got '{}'", options.policy_sha256));
  std::set<std::string> names;
  for (const std::string& path : options.artifacts)
    if (!names.insert(path).second) throw UsageError(fmt::format("--artifact: '{}' is given twice", path));
}

struct Outcome {
  std::optional<gate::Circumstances> by;  // what envelopes are judged by; none where no policy was obeyed
  gate::Answer answer;
  std::vector<std::string> not_asked, not_looked_at;
  json details = json::object();  // what the JSON says beside the answer
};

json summary(const gate::Admission& admission) {
  json statement;
  if (!admission.predicate.is_null())
    for (const char* member : {"verdict", "kernel", "candidate", "contract_version", "plan_hash", "seed", "preset",
                               "dtypes", "issued", "expires"})
      if (admission.predicate.contains(member)) statement[member] = admission.predicate[member];
  return statement;
}

// Read once, for the envelope and for every step of a ladder: one policy, one machine, one time. Where the command line
// names the policy's digest, no other one is obeyed.
void read_circumstances(const GateOptions& options, Outcome& outcome) {
  const std::filesystem::path file = options.policy;
  gate::Circumstances by;
  try {
    const std::string text = read_whole(file);
    const std::string sha256 = attest::sha256_of_bytes(text);
    outcome.details["policy"] = {{"file", options.policy}, {"sha256", sha256}};
    if (!options.policy_sha256.empty() && options.policy_sha256 != sha256) {
      outcome.answer.refusals.push_back(
          {"policy", fmt::format("wanted the policy {}, got {}", options.policy_sha256, sha256),
           "restore the policy that was agreed on, or agree on this one and give its digest"});
      return;
    }
    by.policy = gate::policy_from(text, file.string(), file.parent_path());
  } catch (const std::runtime_error& fault) {
    throw UsageError(fmt::format("--policy: {}", fault.what()));
  }
  const Loader loader = loading_machine(options.machine, options.torch);
  by.machine = loader.facts;
  by.clock = gate::now();
  if (!loader.torch.empty())
    outcome.answer.checked.push_back(
        {"machine", fmt::format("torch {} was read from {}", by.machine.at("torch"), loader.torch)});
  outcome.details["policy"]["members"] = to_json(by.policy);
  outcome.details["machine"] = by.machine;
  outcome.details["torch_folder"] = loader.torch;
  outcome.details["clock"] = gate::to_text(by.clock);
  outcome.by = std::move(by);
}

gate::Answer judge_envelope(const GateOptions& options, Outcome& outcome) {
  const std::vector<std::filesystem::path> artifacts(options.artifacts.begin(), options.artifacts.end());
  const gate::Admission admission = gate::admit(*outcome.by, options.envelope, artifacts);
  outcome.not_looked_at.insert(outcome.not_looked_at.end(), admission.not_looked_at.begin(),
                               admission.not_looked_at.end());
  outcome.details["envelope"] = {
      {"file", options.envelope}, {"keyid", admission.keyid}, {"statement", summary(admission)}};
  outcome.details["artifacts"] = json::array();
  for (const gate::Artifact& artifact : admission.artifacts)
    outcome.details["artifacts"].push_back(
        {{"path", artifact.path.string()}, {"algorithm", artifact.digest.algorithm}, {"digest", artifact.digest.hex}});
  return admission.answer;
}

gate::Answer judge_ladder(const GateOptions& options, const Outcome& outcome) {
  return gate::check_ladder(options.heart.ladder, [&](const auto& envelope, const auto& artifacts) {
    return gate::admit(*outcome.by, envelope, artifacts);
  });
}

std::string to_text(const Outcome& outcome, bool colour) {
  const bool admitted = outcome.answer.admitted();
  const std::string word = admitted ? "ADMITTED" : "REFUSED";
  std::string text = colour ? fmt::format("\033[1;{}m{}\033[0m", admitted ? 32 : 31, word) : word;
  const std::size_t refusals = outcome.answer.refusals.size();
  text += admitted ? fmt::format("  {} checks passed\n", outcome.answer.checked.size())
                   : fmt::format("  {} refusal{}\n", refusals, refusals == 1 ? "" : "s");
  for (const gate::Refusal& refusal : outcome.answer.refusals)
    text +=
        fmt::format("  {:<10} {}\n  {:<10} -> {}\n", refusal.check, visible(refusal.fact), "", visible(refusal.remedy));
  if (admitted)
    for (const gate::Checked& one : outcome.answer.checked)
      text += fmt::format("  {:<10} {}\n", one.check, visible(one.said));
  if (!outcome.not_looked_at.empty())
    text += fmt::format("  not looked at: {}\n", fmt::join(outcome.not_looked_at, ", "));
  if (!outcome.not_asked.empty()) text += fmt::format("  not asked for: {}\n", fmt::join(outcome.not_asked, ", "));
  return text;
}

json to_json(const Outcome& outcome) {
  json refusals = json::array(), checked = json::array();
  for (const gate::Refusal& r : outcome.answer.refusals)
    refusals.push_back({{"check", r.check}, {"fact", r.fact}, {"remedy", r.remedy}});
  for (const gate::Checked& c : outcome.answer.checked) checked.push_back({{"check", c.check}, {"said", c.said}});
  json whole{{"format", "fractus-verify gate 1"},
             {"admitted", outcome.answer.admitted()},
             {"refusals", refusals},
             {"checked", checked},
             {"not_asked", outcome.not_asked},
             {"not_looked_at", outcome.not_looked_at}};
  whole.update(outcome.details);
  return whole;
}

}  // namespace

void add_gate(CLI::App& app, GateOptions& o) {
  app.add_option("--policy", o.policy, "what is let through: a file that ends in .toml or .json");
  app.add_option("--policy-sha256", o.policy_sha256, "the policy's own digest; another one is refused");
  app.add_option("--envelope", o.envelope, "the signed verdict that --sign wrote");
  app.add_option("--artifact", o.artifacts, "a file or a folder that will be loaded; all of them");
  app.add_option("--machine", o.machine, "the machine that loads it: auto, this one, or a JSON file [auto]");
  app.add_option("--torch", o.torch,
                 "for auto: the folder of the torch that it is loaded beside [of the Python on PATH]");
  add_heart(app, o.heart);
  app.add_option("--json", o.json, "as JSON to this file, or to standard output for -");
}

int gate(const GateOptions& options) {
  require_whole(options);
  require_pairs(options.heart, !options.policy.empty());
  Outcome outcome;
  std::vector<GatePart> parts{
      {"envelope", "--policy --envelope --artifact", !options.envelope.empty(),
       [&] { return judge_envelope(options, outcome); }, /*by_policy=*/true},
      {"ladder", "--policy --ladder", !options.heart.ladder.empty(), [&] { return judge_ladder(options, outcome); },
       /*by_policy=*/true}};
  for (GatePart& part : heart_parts(options.heart)) parts.push_back(std::move(part));
  for (const GatePart& part : parts)
    if (!part.asked) outcome.not_asked.push_back(fmt::format("{} ({})", part.name, part.asking));
  if (outcome.not_asked.size() == parts.size())
    throw UsageError(fmt::format("gate: nothing was asked for; there are: {}", fmt::join(outcome.not_asked, "; ")));
  // An answer of an earlier run is none, however this one ends.
  std::error_code ignored;
  if (std::filesystem::is_regular_file(options.json, ignored) && options.json != options.policy)
    std::filesystem::remove(options.json, ignored);
  if (!options.policy.empty()) read_circumstances(options, outcome);
  for (const GatePart& part : parts) {
    if (!part.asked) continue;
    if (part.by_policy && !outcome.by) {
      outcome.not_looked_at.push_back(part.name);
      continue;
    }
    gate::Answer answer = part.run();
    if (answer.checked.empty() && answer.refusals.empty())
      throw std::logic_error(fmt::format("gate: the check '{}' said nothing, which is no pass", part.name));
    outcome.answer.add(std::move(answer));
  }

  const bool json_on_stdout = options.json == "-";
  try_to_write("the text", [&] {
    const std::string text = to_text(outcome, is_terminal(json_on_stdout ? STDERR_FILENO : STDOUT_FILENO));
    if (json_on_stdout)
      say(text);
    else
      print_whole(text);
  });
  if (!options.json.empty())
    try_to_write("the JSON", [&] {
      write_json(options.json, to_json(outcome).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
    });
  return outcome.answer.admitted() ? 0 : 1;
}

}  // namespace fractus::cli
