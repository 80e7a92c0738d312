#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/peers.h"
#include "cli/battery.h"
#include "cli/bench.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "reports/words.h"

namespace fractus::cli {
namespace {

using bench::Answer;
using bench::Answered;
using bench::Tool;
using nlohmann::json;

// UNDECIDED is no answer where the budget cut the run; else it refuses a control and lets a mutant through.
Answer answer_of(const Tried& tried, bool cut) {
  if (cut && tried.verdict == Verdict::undecided) return Answer::none;
  const bool refused = is_mutant(function_of(tried)) ? killed(tried) : !accepted(tried);
  return refused ? Answer::refused : Answer::accepted;
}

// The battery, as a tool among the others.
Tool ours(const Ran& ran) {
  Tool tool{"fractus-verify",
            fmt::format("the battery, seed {}, {}", ran.plan.generation.seed, ran.plan.preset),
            fmt::format("plan {}", ran.plan.hash.substr(0, 16)),
            ran.result.seconds,
            {}};
  for (const Tried& tried : ran.result.functions)
    tool.functions.push_back(
        {function_of(tried), answer_of(tried, ran.result.out_of_budget), tried.reason, tried.seconds});
  return tool;
}

std::vector<std::string> named(const Tool& tool, bool mutants, Answer answer) {
  std::vector<std::string> names;
  for (const Answered& one : tool.functions)
    if (is_mutant(one.function) == mutants && one.answer == answer) names.push_back(one.function);
  return names;
}

std::int64_t mutants_of(const Tool& tool) {
  return std::count_if(tool.functions.begin(), tool.functions.end(),
                       [](const Answered& one) { return is_mutant(one.function); });
}

std::string table(const std::vector<Tool>& tools) {
  std::string text =
      fmt::format("  {:<20} {:>14} {:>16} {:>8}\n", "tool", "mutants killed", "controls refused", "seconds");
  for (const Tool& tool : tools) {
    const std::int64_t mutants = mutants_of(tool);
    const std::int64_t controls = std::ssize(tool.functions) - mutants;
    text += fmt::format("  {:<20} {:>14} {:>16} {:>8.1f}\n", tool.name,
                        fmt::format("{} of {}", named(tool, true, Answer::refused).size(), mutants),
                        fmt::format("{} of {}", named(tool, false, Answer::refused).size(), controls), tool.seconds);
  }
  return text;
}

// A line for each tool that has some.
std::string lists(const std::vector<Tool>& tools, const std::string& what, bool mutants, Answer answer) {
  std::string text;
  for (const Tool& tool : tools)
    if (const auto names = named(tool, mutants, answer); !names.empty())
      text += fmt::format("  {} {} {}\n", tool.name, what, fmt::join(names, ", "));
  return text.empty() ? "" : "\n" + text;
}

std::string settings(const std::vector<Tool>& tools) {
  std::string text = "\n";
  for (const Tool& tool : tools) text += fmt::format("  {:<20} {}\n", tool.name, tool.settings);
  text += "\n";
  for (std::size_t i = 0; i < tools.size(); ++i) {
    std::vector<std::string> same{tools[i].name};
    while (i + 1 < tools.size() && tools[i + 1].inputs == tools[i].inputs) same.push_back(tools[++i].name);
    text += fmt::format("  inputs of {}: {}\n", fmt::join(same, ", "), tools[i].inputs);
  }
  return text;
}

std::string unanswered(const std::vector<Tool>& tools) {
  std::string text;
  for (const Tool& tool : tools)
    for (const Answered& one : tool.functions)
      if (one.answer == Answer::none)
        text += fmt::format("  {} came to no answer on {}: {}\n", tool.name, one.function, visible(one.reason));
  return text.empty() ? "" : "\n" + text;
}

json json_of(const Tool& tool) {
  json functions = json::array();
  for (const Answered& one : tool.functions)
    functions.push_back({{"name", one.function},
                         {"kind", is_mutant(one.function) ? "mutant" : "control"},
                         {"answer", one.answer == Answer::refused    ? "refused"
                                    : one.answer == Answer::accepted ? "accepted"
                                                                     : "none"},
                         {"reason", one.reason},
                         {"seconds", one.seconds}});
  return {{"tool", tool.name},
          {"settings", tool.settings},
          {"inputs", tool.inputs},
          {"mutants_killed", named(tool, true, Answer::refused).size()},
          {"controls_refused", named(tool, false, Answer::refused).size()},
          {"seconds", tool.seconds},
          {"functions", functions}};
}

}  // namespace

int bench_power(const Options& given) {
  const std::filesystem::path here = root() / "bench";
  Options options = given;
  if (options.file.empty()) options.file = here / "functions" / "linear_attention.py";
  require_file(options.file);  // one: a table is of one kernel

  Workshop workshop;
  const Source source = sources(workshop, options).front();
  const std::string& kernel = source.driver->contract->kernel;
  const bench::Peers peers{
      .venv = root() / ".venv",
      .libraries = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "cuda-stubs",
      .script = here / "peers" / "run.py"};
  if (!std::filesystem::exists(here / "peers" / (kernel + ".py")))
    throw UsageError(
        fmt::format("bench power: the peers have no reference and inputs of {}; they would be in bench/peers/{}.py",
                    kernel, kernel));

  const Ran ran = run(workshop, source, options);
  for (const Tried& tried : ran.result.functions)
    if (tried.property == "loading")
      throw UsageError(fmt::format("bench power: {}: {}", tried.candidate, tried.reason));
  if (!ran.result.complaints.empty())
    throw std::runtime_error(fmt::format("the plan refuses what is right: {}", fmt::join(ran.result.complaints, "; ")));
  say("the peers ...\n");
  std::vector<Tool> tools{ours(ran)};
  for (Tool& tool : bench::run(peers, kernel, source.file, source.functions)) tools.push_back(std::move(tool));

  json figures{{"kernel", kernel},
               {"file", source.file.string()},
               {"plan_hash", ran.plan.hash},
               {"mutants", mutants_of(tools.front())},
               {"controls", std::ssize(source.functions) - mutants_of(tools.front())},
               {"tools", json::array()}};
  for (const Tool& tool : tools) figures["tools"].push_back(json_of(tool));
  const std::string open = unanswered(tools);
  show(options,
       fmt::format("{}, {}\n{}{}{}{}{}", kernel, visible(source.file.string()), table(tools),
                   lists(tools, "misses", true, Answer::accepted), lists(tools, "refuses", false, Answer::refused),
                   settings(tools), open),
       figures);
  return open.empty() ? 0 : static_cast<int>(Verdict::undecided);
}

}  // namespace fractus::cli
