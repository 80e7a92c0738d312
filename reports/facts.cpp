#include "reports/facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "properties/over_field.h"

namespace fractus {
namespace {

// As the command line names it.
std::string spelling(const std::string& form, const std::map<std::string, std::int64_t>& settings) {
  std::string text = form;
  for (const auto& [parameter, value] : settings)
    text += fmt::format("{}{}={}", text == form ? ":" : ",", parameter, value);
  return text;
}

}  // namespace

std::vector<OutputError> output_errors(const Result& result) {
  std::map<std::string, OutputError> by_key;
  const auto of = [&](const std::string& key) -> OutputError& {
    OutputError& error = by_key[key];
    error.key = key;
    return error;
  };
  for (const PropertyResult& p : result.properties) {
    for (const auto& [key, ratio] : p.worst_ratio) {
      OutputError& error = of(key);
      if (!error.property.empty() && ratio <= error.worst) continue;
      error.worst = ratio;
      error.property = p.name;
    }
    for (const auto& [key, histogram] : p.histogram) of(key).histogram.add(histogram);
    for (const auto& [key, ratio] : p.known_good_ratio)
      if (const auto known = by_key.find(key); known != by_key.end())
        known->second.known_good = std::max(known->second.known_good.value_or(0), ratio);
  }
  std::vector<OutputError> errors;
  for (auto& [key, error] : by_key) errors.push_back(std::move(error));
  return errors;
}

bool broke(const Result& result) {
  return std::any_of(result.properties.begin(), result.properties.end(),
                     [](const PropertyResult& p) { return p.finding.has_value(); });
}

std::int64_t killed(const Result& result) {
  return std::count_if(result.kills.begin(), result.kills.end(), [](const Kill& kill) { return kill.killed; });
}

std::vector<std::string> survivors(const Result& result) {
  std::vector<std::string> names;
  for (const Kill& kill : result.kills)
    if (!kill.killed && result.power_measured) names.push_back(kill.form);
  return names;
}

std::map<std::string, std::int64_t> kills_by_property(const Result& result) {
  std::map<std::string, std::int64_t> counts;
  for (const Kill& kill : result.kills)
    if (kill.killed) ++counts[kill.property];
  return counts;
}

std::string escape_text(const PropertyResult& p) {
  if (p.escape <= 0) return "";
  if (p.name == "identity" && p.verdict != "PASSED") return "";
  if (p.name == "identity")
    return fmt::format(
        "a form that is another rational function, of at most 1000 times the definition's degree, is equal at all "
        "draws with a chance of at most {:.2g}",
        p.escape);
  return fmt::format(
      "a form whose final state is another polynomial of the contract's degrees passes one of the free draws with a "
      "chance of at most {:.2g}",
      p.escape);
}

std::vector<std::string> audit_lines(const Result& result) {
  std::vector<std::string> lines;
  for (const Remark& remark : result.audit)
    lines.push_back(fmt::format("{}: {}{}", remark.kind, text_of(remark),
                                remark.count > 1 ? fmt::format(", {} times", remark.count) : ""));
  return lines;
}

std::string audit_counts(const Result& result) {
  std::map<std::string, int> places;
  for (const Remark& remark : result.audit) ++places[remark.kind];
  std::vector<std::string> counts;
  for (const auto& [kind, count] : places) {
    const std::string noun = kind.starts_with("non-") ? kind + " operation" : kind;
    counts.push_back(fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun == "branch" ? "es" : "s"));
  }
  return counts.empty() ? "" : fmt::format("{}; report.md names them", fmt::join(counts, ", "));
}

std::vector<std::string> claims_of(const PropertyResult& p) {
  return p.verdict == "PASSED" ? p.claims : std::vector<std::string>{};
}

std::string proven_text(const Result& result) {
  std::vector<std::string> unclaimed;
  for (const PropertyResult& p : result.properties)
    if (p.verdict == "NOT ALGEBRAIC") unclaimed.push_back(p.name);
  return fmt::format(
      "Every property{} passed on {}{}, and the same plan caught every known-wrong form{}.",
      unclaimed.empty()
          ? ""
          : fmt::format(" but {}, which claims nothing of a form that is not algebraic,", fmt::join(unclaimed, ", ")),
      fmt::join(result.dtypes, " and "), result.forward_only ? ", forward only: gradients were not judged" : "",
      result.backward_alone.empty()
          ? ""
          : fmt::format(" but the {} that are wrong in the backward alone", result.backward_alone.size()));
}

std::vector<std::string> not_covered(const Result& result) {
  std::vector<std::string> phrases = result.coverage.missing();
  if (const auto out = left_out(result); !out.empty())
    phrases.push_back(fmt::format("{}: {}", fmt::join(out, ", "),
                                  result.shards.empty() ? "left out by --only or --skip" : "in none of the shards"));
  if (result.forward_only)
    phrases.emplace_back("gradients, in any property: this run was restricted by --forward-only");
  if (result.dtypes.size() == 1)
    phrases.push_back(fmt::format("any dtype but {}: this run was restricted by --dtype", result.dtypes[0]));
  for (const auto& [dtype, dims] : result.coverage.largest) {
    std::string extents;
    for (const auto& [symbol, extent] : dims)
      extents += fmt::format("{}{} {}", extents.empty() ? "" : ", ", symbol, extent);
    phrases.push_back(
        fmt::format("{} beyond {}, each the largest that was tried, not all of them at once", name(dtype), extents));
  }
  phrases.emplace_back(
      "other devices than the CPU, other machines than the one below, inputs outside the contract's domain, double "
      "backward");
  return phrases;
}

std::string command_of(const Result& result) {
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
  return command;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::fabs(amount) >= 1024 && unit + 1 < std::size(units)) amount /= 1024, ++unit;
  return amount == std::floor(amount) ? fmt::format("{:.0f} {}", amount, units[unit])
                                      : fmt::format("{:.1f} {}", amount, units[unit]);
}

std::string clipped(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("{} ... ({} bytes more)", text.substr(0, end), text.size() - end);
}

}  // namespace fractus
