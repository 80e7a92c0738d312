#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reports/result.h"
#include "reports/words.h"

namespace fractus {
namespace {

// Text of a candidate may hold anything: in a table cell a bar or a line break would end the cell, elsewhere a tag, a
// link or a code span would become one.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (std::string_view("|`[]\\").find(c) != std::string_view::npos) safe += '\\';
    if (c == '<')
      safe += "&lt;";
    else
      safe += c == '\n' || c == '\r' ? ' ' : c;
  }
  return safe;
}

std::string ratios(const std::map<std::string, double>& by_tensor) {
  std::string text;
  for (const auto& [tensor, ratio] : by_tensor)
    text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", tensor, ratio);
  return text.empty() ? "-" : text;
}

std::string ratios_or_bits(const PropertyResult& p) {
  return p.worst_ratio.empty() && p.bit_equal > 0 ? fmt::format("{} elements bit-equal", p.bit_equal)
                                                  : ratios(p.worst_ratio);
}

// As the command line names it.
std::string spelling(const std::string& form, const std::map<std::string, std::int64_t>& settings) {
  std::string text = form;
  for (const auto& [parameter, value] : settings)
    text += fmt::format("{}{}={}", text == form ? ":" : ",", parameter, value);
  return text;
}

void add_properties(std::string& page, const Result& result) {
  page +=
      "## What was tried\n\n| property | verdict | cases | elements | undecidable | in doubt | worst error over bound "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const PropertyResult& p : result.properties)
    page += fmt::format("| {} | {} | {} of {} | {} | {} | {} | {} |\n", p.name, p.verdict, p.cases, p.planned,
                        p.elements, p.undecidable, p.choices_in_doubt, ratios_or_bits(p));
  page += "\n";
  for (const PropertyResult& p : result.properties) {
    page += fmt::format("- **{}**: {}.", p.name, p.proves);
    if (p.flip_moves > 0)
      page += fmt::format(
          " Of {} choices in doubt the form took {} otherwise than the definition; one that goes the other way moves "
          "an "
          "output by up to {:.3g}.",
          p.choices_in_doubt, p.choices_flipped, p.flip_moves);
    if (p.escape > 0)
      page += fmt::format(
          " A form whose final state is another polynomial of the contract's degrees passes one of the free draws with "
          "a chance of at most {:.2g}.",
          p.escape);
    if (!p.reason.empty()) page += fmt::format(" {}.", cell(p.reason));
    for (const auto& [waiver, times] : p.waived) page += fmt::format(" Waived: {} ({} cases).", waiver, times);
    if (!p.known_good_ratio.empty()) page += fmt::format(" Known-good forms: {}.", ratios(p.known_good_ratio));
    page += "\n";
    for (const std::string& note : p.notes) page += fmt::format("  - {}\n", cell(note));
  }
}

void add_witnesses(std::string& page, const std::vector<PropertyResult>& properties, const std::string& title) {
  for (const PropertyResult& p : properties) {
    if (!p.finding || !p.witness) continue;
    page += fmt::format("\n## {}: {}\n\n{}\n\n", title, p.name, cell(p.finding->text));
    page += fmt::format("- smallest case: `{}`\n- found at: `{}`, {} shrinking steps\n", label(p.witness->smallest),
                        label(p.witness->found), p.witness->shrink_steps);
    if (p.finding->kind == "value" || p.finding->kind == "bits")
      page += fmt::format("- expected {:.17g}, radius {:.3g}, tolerance {:.3g}, got {:.17g} at {}{}\n",
                          p.finding->expected, p.finding->radius, p.finding->tolerance, p.finding->got,
                          p.finding->tensor, to_string(p.finding->index));
    if (!p.witness->replay.empty()) page += fmt::format("- replay: `{}`\n", p.witness->replay);
  }
}

void add_reference(std::string& page, const Result& result) {
  if (!result.reference) return;
  const Reference& reference = *result.reference;
  page += fmt::format(
      "\n## The reference\n\n`{}`{}: {}, by the same definition and on the candidate's cases.\n\n| property | "
      "verdict | cases | worst error over bound | apart at most |\n|---|---|---|---|---|\n",
      reference.name, settings_text(reference.settings), reference.verdict);
  for (std::size_t i = 0; i < reference.properties.size(); ++i) {
    const PropertyResult& p = reference.properties[i];
    page += fmt::format("| {} | {} | {} of {} | {} | {} |\n", p.name, p.verdict, p.cases, p.planned, ratios_or_bits(p),
                        ratios(apart(result.properties[i], p)));
  }
  page +=
      "\nApart at most: candidate and reference are each off the same value, the definition's, by their own part of "
      "the bound, so they differ by no more than the sum (triangle inequality). Undecidable elements, and calls with a "
      "choice in doubt, where each may take its own branch, are not counted.\n";
  add_witnesses(page, reference.properties, "The reference's witness");
}

void add_output(std::string& page, const Result& result) {
  if (result.verdict != Verdict::failed || result.candidate_output.empty()) return;
  page += fmt::format("\n## The last that the candidate's process printed\n\n{}\n",
                      indented(tail_of(result.candidate_output, 2000)));
}

void add_power(std::string& page, const Result& result) {
  if (result.kills.empty()) return;
  const auto killed =
      std::count_if(result.kills.begin(), result.kills.end(), [](const Kill& kill) { return kill.killed; });
  page += fmt::format(
      "\n## Power\n\n{} of {} known-wrong forms were caught by this plan{}.\n\n| known-wrong form | caught by | as | "
      "at |\n|---|---|---|---|\n",
      killed, result.kills.size(),
      result.power_measured ? ""
                            : "; it was not measured to the end, since the candidate had failed or the run was cut");
  for (const Kill& kill : result.kills)
    page += fmt::format("| {}: {} | {} | {} {} | {} |\n", kill.form, cell(kill.summary),
                        kill.killed             ? kill.property
                        : result.power_measured ? "**survived**"
                                                : "-",
                        kill.kind, kill.tensor, cell(kill.where));
}

void add_coverage(std::string& page, const Result& result) {
  page += "\n## Coverage\n\n";
  std::string covered;
  for (const auto& [name, count] : result.coverage.cases)
    if (count > 0) covered += fmt::format("{}{} ({})", covered.empty() ? "" : "; ", name, count);
  page += covered.empty() ? "Nothing was covered.\n" : covered + ".\n";
  const auto missing = result.coverage.missing();
  for (const auto& [form, edge] : result.shared_edges)
    page += fmt::format("\nThe known-good form `{}` breaks at an edge that the contract names (`shared-edges`): {}.\n",
                        form, cell(edge));
  page += "\n## Not covered\n\n";
  if (!missing.empty()) page += fmt::format("- {}\n", fmt::join(missing, "\n- "));
  if (result.partial)
    page += fmt::format("- every property but {}: this run was restricted by `--only`\n", fmt::join(result.only, ", "));
  if (result.forward_only) page += "- gradients, in any property: this run was restricted by `--forward-only`\n";
  if (result.dtypes.size() == 1)
    page += fmt::format("- any dtype but {}: this run was restricted by `--dtype`\n", result.dtypes[0]);
  for (const auto& [dtype, dims] : result.coverage.largest) {
    std::string extents;
    for (const auto& [symbol, extent] : dims)
      extents += fmt::format("{}{} {}", extents.empty() ? "" : ", ", symbol, extent);
    page +=
        fmt::format("- {} beyond {}, each the largest that was tried, not all of them at once\n", name(dtype), extents);
  }
  page +=
      "- other devices than the CPU, other machines than the one below, inputs outside the contract's domain, double "
      "backward\n";
}

}  // namespace

std::string to_markdown(const Result& result) {
  std::string page = fmt::format("# {}: {} `{}`{}\n\n", name(result.verdict), result.kernel, result.candidate,
                                 settings_text(result.settings));
  for (const std::string& reason : result.reasons) page += fmt::format("- {}\n", cell(reason));
  if (!result.waived.empty()) page += fmt::format("- {}\n", waivers_text(result));
  if (result.reasons.empty())
    page += fmt::format(
        "Every property passed on {}{}, and the same plan caught every known-wrong form{}.\n",
        fmt::join(result.dtypes, " and "), result.forward_only ? ", forward only: gradients were not judged" : "",
        !result.backward_alone.empty()
            ? fmt::format(" but the {} that are wrong in the backward alone", result.backward_alone.size())
            : "");
  page += "\n";
  add_properties(page, result);
  add_witnesses(page, result.properties, "Witness");
  add_reference(page, result);
  add_output(page, result);
  add_power(page, result);
  add_coverage(page, result);
  page += "\n## How to repeat it\n\n";
  std::string command = fmt::format("./fractus-verify --kernel {} --candidate {}", result.kernel,
                                    spelling(result.candidate, result.settings));
  if (!result.recomputes.empty()) command += fmt::format(" --recompute-of {}", result.recomputes);
  if (result.reference)
    command += fmt::format(" --reference {}", spelling(result.reference->name, result.reference->settings));
  command += fmt::format(" --seed {} --preset {}", result.seed, result.preset);
  if (result.dtypes.size() == 1) command += fmt::format(" --dtype {}", result.dtypes[0]);
  if (result.forward_only) command += " --forward-only";
  if (result.partial) command += fmt::format(" --only {}", fmt::join(result.only, ","));
  if (!result.waived.empty()) command += fmt::format(" --waive {}", fmt::join(result.waived, ","));
  page += fmt::format(
      "`{}`\n\n| | |\n|---|---|\n| plan | `{}` |\n| contract | {} version {} |\n| started | {} |\n| time | {} |\n",
      command, result.plan_hash, result.kernel, result.contract_version, result.started, time_text(result.seconds));
  for (const auto& [key, value] : result.machine) page += fmt::format("| {} | {} |\n", key, cell(value));
  return page;
}

}  // namespace fractus
