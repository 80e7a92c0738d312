#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/over_field.h"
#include "reports/facts.h"
#include "reports/result.h"
#include "reports/words.h"

namespace fractus {
namespace {

// A note of many parts has its place in the report; here is room for a line.
std::string first_part(const std::string& note) {
  constexpr std::size_t room = 100;
  return note.size() <= room ? note : note.substr(0, std::min(room, note.find_first_of(";:"))) + " ...";
}

std::string paint(const std::string& text, const std::string& verdict, bool colour) {
  if (!colour) return text;
  const char* code = verdict == "PASSED" || verdict == "EQUIVALENT"  ? "32"
                     : verdict == "DIFFERENT" || verdict == "FAILED" ? "31"
                                                                     : "33";
  return fmt::format("\033[1;{}m{}\033[0m", code, text);
}

std::string ratio_text(const PropertyResult& p) {
  if (p.bit_equal > 0) return fmt::format("{} elements bit-equal", p.bit_equal);
  if (p.worst_ratio.empty()) return p.notes.empty() || p.cases == 0 ? "" : first_part(p.notes.back());
  return fmt::format("at most {:.3g} of the bound", p.worst());
}

// How much hangs on them is measured, not assumed to be nothing.
std::string in_doubt(const PropertyResult& p) {
  std::string text = fmt::format("{} choices in doubt", p.choices_in_doubt);
  if (p.choices_flipped > 0) text += fmt::format(", {} of them taken otherwise", p.choices_flipped);
  if (p.flip_moves > 0) text += fmt::format(" (a flip moves an output by up to {:.2g})", p.flip_moves);
  return text;
}

std::string facts_of(const PropertyResult& p) {
  std::vector<std::string> facts;
  if (const std::string ratio = ratio_text(p); !ratio.empty()) facts.push_back(ratio);
  if (p.choices_in_doubt > 0) facts.push_back(in_doubt(p));
  if (p.undecidable > 0)
    facts.push_back(fmt::format("{:.2g} % undecidable",
                                100.0 * static_cast<double>(p.undecidable) / static_cast<double>(p.elements)));
  if (p.name == "identity" && p.escape > 0 && p.verdict == "PASSED")
    facts.push_back(fmt::format("a wrong form passes with a chance of at most {:.1g}", p.escape));
  if (p.not_algebraic && !p.finding && p.algebra.empty())
    facts.push_back(fmt::format("no claim: {}", text_of(*p.not_algebraic)));
  for (const auto& [waiver, times] : p.waived) facts.push_back(fmt::format("{} waived {} times", waiver, times));
  return fmt::format("{}", fmt::join(facts, ", "));
}

// Both are near the definition on the same cases, all of them.
bool comparable(const PropertyResult& a, const PropertyResult& b) {
  const auto sound = [](const PropertyResult& p) { return !p.finding && p.waived.empty(); };
  return sound(a) && sound(b) && a.cases == b.cases;
}

}  // namespace

std::vector<std::string> left_out(const Result& result) {
  std::vector<std::string> names;
  for (const std::string& property : result.plan_properties)
    if (result.partial && !contains(result.only, property)) names.push_back(property);
  return names;
}

std::string settings_text(const std::map<std::string, std::int64_t>& settings) {
  std::string text;
  for (const auto& [parameter, value] : settings) text += fmt::format(" {}={}", parameter, value);
  return text;
}

std::map<std::string, double> apart(const PropertyResult& a, const PropertyResult& b) {
  std::map<std::string, double> sums;
  if (!comparable(a, b)) return sums;
  for (const auto& [key, ratio] : a.worst_ratio)
    if (const auto its = b.worst_ratio.find(key); its != b.worst_ratio.end()) sums[key] = ratio + its->second;
  return sums;
}

std::optional<double> apart(const Result& result) {
  std::optional<double> most;
  for (std::size_t i = 0; result.reference && i < result.properties.size(); ++i) {
    const PropertyResult &its = result.properties[i], &other = result.reference->properties[i];
    if (!comparable(its, other)) return std::nullopt;
    for (const auto& [key, sum] : apart(its, other)) most = std::max(most.value_or(0), sum);
  }
  return most;
}

std::map<std::string, std::int64_t> waiver_uses(const Result& result) {
  std::map<std::string, std::int64_t> uses;
  for (const std::string& waiver : result.waived) uses[waiver] = 0;
  for (const PropertyResult& p : result.properties)
    for (const auto& [waiver, times] : p.waived) uses[waiver] += times;
  if (result.reference)
    for (const PropertyResult& p : result.reference->properties)
      for (const auto& [waiver, times] : p.waived) uses[waiver] += times;
  return uses;
}

std::string waivers_text(const Result& result) {
  std::vector<std::string> used, idle;
  for (const auto& [waiver, times] : waiver_uses(result)) (times > 0 ? used : idle).push_back(waiver);
  std::vector<std::string> parts;
  if (!used.empty()) parts.push_back(fmt::format("waived: {}", fmt::join(used, ", ")));
  if (!idle.empty()) parts.push_back(fmt::format("waived, and never needed: {}", fmt::join(idle, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string indented(std::string_view text) {
  std::string lines = "    ";
  while (text.ends_with('\n')) text.remove_suffix(1);
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines += "    ";
  }
  return lines;
}

std::string_view name(Verdict verdict) {
  static constexpr std::string_view names[] = {"EQUIVALENT", "DIFFERENT", "UNDECIDED", "MISTRUSTED", "FAILED"};
  return names[static_cast<int>(verdict)];
}

double PropertyResult::worst() const {
  double worst = 0;
  for (const auto& [key, ratio] : worst_ratio) worst = std::max(worst, ratio);
  return worst;
}

std::string to_text(const Result& result, bool colour) {
  std::string text;
  const auto line = [&text](const std::string& words) { text += words + "\n"; };
  line(fmt::format("{} {}{}", result.kernel, result.candidate, settings_text(result.settings)));
  if (!result.recomputes.empty()) line(fmt::format("runs {} again in its backward", result.recomputes));
  if (result.reference)
    line(fmt::format("against {}{}", result.reference->name, settings_text(result.reference->settings)));
  line(fmt::format("plan {}  seed {}  preset {}  {}", result.plan_hash.substr(0, 16), result.seed, result.preset,
                   fmt::join(result.dtypes, ", ")));
  line("");
  const auto row = [&](const std::string& title, const PropertyResult& p) {
    line(fmt::format("  {:<10} {} {:>5} cases  {}", title, paint(fmt::format("{:<10}", p.verdict), p.verdict, colour),
                     p.cases, facts_of(p)));
  };
  for (std::size_t i = 0; i < result.properties.size(); ++i) {
    row(result.properties[i].name, result.properties[i]);
    if (result.reference) row(" reference", result.reference->properties[i]);
  }
  if (!result.kills.empty()) {
    const auto killed =
        std::count_if(result.kills.begin(), result.kills.end(), [](const Kill& kill) { return kill.killed; });
    const std::string verdict = !result.power_measured                                       ? "NOT RUN"
                                : killed == static_cast<std::ptrdiff_t>(result.kills.size()) ? "PASSED"
                                                                                             : "MISTRUSTED";
    const std::string beside =
        !result.backward_alone.empty()
            ? fmt::format("; {} others are wrong in the backward alone", result.backward_alone.size())
            : "";
    line(fmt::format("  {:<10} {} {:>5} of {} known-wrong forms caught{}{}", "power",
                     paint(fmt::format("{:<10}", verdict), verdict, colour), killed, result.kills.size(),
                     result.power_measured ? "" : " when the run ended", beside));
  }
  line("");
  if (const auto most = apart(result))
    line(
        fmt::format("  where both rows give a part of the bound, the two differ by at most {:.3g} of it: each is off "
                    "one value, the definition's\n",
                    *most));
  for (const auto& [form, edge] : result.shared_edges)
    line(fmt::format("  at an edge that the contract names, the known-good form {} breaks too: {}", form, edge));
  for (const PropertyResult& p : result.properties)
    for (const std::string& claim : claims_of(p)) line(fmt::format("  {} also holds {}", p.name, claim));
  if (const std::string audit = audit_counts(result); !audit.empty()) line("  audit: " + audit);
  for (const PropertyResult& p : result.properties) {
    if (!p.witness) continue;
    line(fmt::format("  {} breaks at {}", p.name, label(p.witness->smallest)));
    line(fmt::format("    {}", p.finding->text));
    if (!p.witness->replay.empty()) line(fmt::format("    {}", p.witness->replay));
    for (const std::string& note : p.notes) line(fmt::format("    {}", note));
  }
  const bool told = std::any_of(result.properties.begin(), result.properties.end(),
                                [](const PropertyResult& p) { return p.witness.has_value(); });
  if (!told)
    for (const std::string& reason : result.reasons) line("  " + reason);
  else if (result.reference)
    for (const std::string& failure : result.reference->failures) line("  " + failure);
  if (told && !result.candidate_output.empty() && result.verdict == Verdict::failed) {
    line("  the candidate's process printed, last of all:");
    line(indented(tail_of(result.candidate_output, 500)));
  }
  std::string verdict = fmt::format("{}", name(result.verdict));
  if (result.verdict == Verdict::equivalent && result.dtypes.size() == 1)
    verdict += fmt::format(" ({} only)", result.dtypes[0]);
  if (result.forward_only) verdict += " (forward only)";
  if (!result.waived.empty()) verdict += fmt::format(" ({})", waivers_text(result));
  line(fmt::format("{}  {} {}, {}", paint(verdict, std::string(name(result.verdict)), colour), result.kernel,
                   result.candidate, time_text(result.seconds)));
  return text;
}

}  // namespace fractus
