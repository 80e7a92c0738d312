// The page for a person who has more time than a merge request gives: one file, no script, nothing from the network.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/over_field.h"
#include "reports/facts.h"
#include "reports/figures.h"
#include "reports/result.h"
#include "reports/words.h"

namespace fractus {
namespace {

constexpr std::size_t most_output = 4000;  // of what a process printed, from its end

constexpr const char* style = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1c2127; --soft: #59636e; --line: #d4dae0; --panel: #f5f7f9;
  --bar: #3c72ad; --good: #1a7f37; --bad: #b3261e; --doubt: #8a5a00; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #14181d; --text: #e4e8ec; --soft: #9aa5b1; --line: #363e47;
  --panel: #1d2329; --bar: #6ea3dc; --good: #57c26f; --bad: #ff8a80; --doubt: #e0ad4b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { margin: .5rem 0; } ul { padding-left: 1.2rem; margin: .5rem 0; }
code, pre { font: .88em/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .6rem; white-space: pre-wrap;
  margin: .5rem 0; }
.soft { color: var(--soft); font-size: .88em; }
.good { color: var(--good); } .bad { color: var(--bad); } .doubt { color: var(--doubt); }
.verdict { display: inline-block; padding: .1rem .6rem; border: 2px solid currentColor; border-radius: 6px;
  font-weight: 700; letter-spacing: .02em; }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .5rem; margin: 1rem 0; }
.numbers div { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .4rem .6rem; }
.numbers b { display: block; font-size: 1.2rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; font-size: .92em; }
th, td { text-align: left; vertical-align: top; padding: .3rem .5rem .3rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; overflow-wrap: normal; } tr.above td { border-bottom: 0; padding-bottom: 0; overflow-wrap: normal; } td.number, th.number { text-align: right; overflow-wrap: normal; }
td.number { white-space: nowrap; }
td.verdict-cell { white-space: nowrap; overflow-wrap: normal; font-weight: 600; font-size: .9em; }
.matrix th.turned { writing-mode: vertical-rl; transform: rotate(180deg); vertical-align: bottom; padding: .3rem 0;
  font-weight: 500; font-size: .85em; white-space: nowrap; }
.matrix td.mark, .matrix th.turned { width: 1.35rem; text-align: center; border-left: 1px solid var(--line); }
.matrix th.turned { text-align: left; border-left: 0; border-right: 1px solid var(--line); }
.matrix td.mark { padding: .3rem 0; line-height: 1.2; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(15.5rem, 1fr)); gap: .8rem; margin: .8rem 0; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; break-inside: avoid; }
figcaption { font-size: .88em; } figcaption b { font-size: 1.05em; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 10px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
svg .bar { fill: var(--bar); } svg .over { fill: var(--bad); } svg .axis { stroke: var(--line); }
svg .bound { stroke: var(--bad); stroke-dasharray: 3 2; } svg .known { stroke: var(--good); stroke-width: 1.5; }
svg .path { fill: none; stroke: var(--bar); stroke-width: 1.5; } svg .dot { fill: var(--bar); }
svg .allowed { fill: none; stroke: var(--bad); stroke-dasharray: 3 2; }
ul.classes { columns: 15rem; list-style: none; padding: 0; font-size: .92em; }
ul.classes li { break-inside: avoid; border-bottom: 1px solid var(--line); display: flex; justify-content: space-between;
  gap: .5rem; padding: .1rem .2rem; }
@media print { body { max-width: none; padding: 0; font-size: 10.5pt; } h2, h3 { break-after: avoid; } tr { break-inside: avoid; }
  .figures { grid-template-columns: repeat(3, 1fr); } .verdict, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)";

const char* colour_of(std::string_view verdict) {
  return verdict == "PASSED" || verdict == "EQUIVALENT"  ? "good"
         : verdict == "DIFFERENT" || verdict == "FAILED" ? "bad"
                                                         : "doubt";
}

std::string ratio_cell(const PropertyResult& p) {
  if (p.worst_ratio.empty()) return p.bit_equal > 0 ? "bit-equal" : "-";
  return fmt::format("{:.3g}", p.worst());
}

// "16,166,474"
std::string grouped(std::int64_t n) {
  std::string digits = fmt::format("{}", n);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

// A long name of a form, with places to break at.
std::string breakable(const std::string& name) {
  std::string text;
  for (const char c : escaped(name)) text += c == '_' ? std::string("_<wbr>") : std::string(1, c);
  return text;
}

void add_head(std::string& page, const Result& result, const std::string& origin) {
  const std::string verdict(name(result.verdict));
  const std::string form = escaped(fmt::format("{}{}", result.candidate, settings_text(result.settings)));
  page += fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>{}: {} {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<h1><span class=\"verdict {}\">{}</span> {} <code>{}</code></h1>\n",
      verdict, escaped(result.kernel), form, style, colour_of(verdict), verdict, escaped(result.kernel), form);
  if (!result.summary.empty()) page += fmt::format("<p class=\"soft\">{}</p>\n", escaped(result.summary));
  if (!origin.empty()) page += fmt::format("<p class=\"doubt\">{}</p>\n", escaped(origin));
  page += "<ul>\n";
  for (const std::string& reason : result.reasons) page += fmt::format("<li>{}</li>\n", escaped(reason));
  if (result.reasons.empty()) page += fmt::format("<li>{}</li>\n", escaped(proven_text(result)));
  if (!result.recomputes.empty())
    page += fmt::format("<li>It runs <code>{}</code> again in its backward.</li>\n", escaped(result.recomputes));
  if (!result.shards.empty())
    page += fmt::format("<li>Put together from {} shards of plan <code>{}</code>.</li>\n", result.shards.size(),
                        escaped(result.plan_of.substr(0, 16)));
  if (!result.waived.empty()) page += fmt::format("<li>{}</li>\n", escaped(waivers_text(result)));
  page += "</ul>\n";
}

void add_numbers(std::string& page, const Result& result) {
  std::int64_t cases = 0, elements = 0;
  for (const PropertyResult& p : result.properties) cases += p.cases, elements += p.elements;
  const auto number = [&](const std::string& value, const std::string& what) {
    page += fmt::format("<div><b>{}</b><span class=\"soft\">{}</span></div>\n", escaped(value), escaped(what));
  };
  page += "<div class=\"numbers\">\n";
  number(grouped(cases), "cases");
  number(grouped(elements), "elements compared");
  const auto errors = output_errors(result);
  const auto worst = std::max_element(errors.begin(), errors.end(),
                                      [](const OutputError& a, const OutputError& b) { return a.worst < b.worst; });
  if (worst != errors.end() && !broke(result))
    number(fmt::format("{:.3g}", worst->worst), "worst error over bound, " + worst->key);
  if (!result.kills.empty())
    number(fmt::format("{} of {}", killed(result), result.kills.size()),
           result.power_measured ? "known-wrong forms caught" : "known-wrong forms caught when the run ended");
  const std::size_t classes = result.coverage.cases.size();
  if (classes > 0)
    number(fmt::format("{} of {}", classes - result.coverage.missing().size(), classes), "classes covered");
  number(time_text(result.seconds), result.shards.empty() ? "run time" : "run time of all shards");
  page += "</div>\n";
}

void add_properties(std::string& page, const Result& result) {
  page +=
      "<h2>What was proven</h2>\n<table>\n<tr><th>property</th><th>verdict</th><th class=\"number\">cases</th><th "
      "class=\"number\">error / bound</th></tr>\n";
  for (const PropertyResult& p : result.properties) {
    std::vector<std::string> facts;
    if (p.elements > 0) facts.push_back(fmt::format("{} elements", p.elements));
    if (p.bit_equal > 0) facts.push_back(fmt::format("{} bit-equal", p.bit_equal));
    if (p.undecidable > 0) facts.push_back(fmt::format("{} undecidable", p.undecidable));
    if (p.choices_in_doubt > 0) facts.push_back(fmt::format("{} choices in doubt", p.choices_in_doubt));
    if (p.choices_flipped > 0) facts.push_back(fmt::format("{} of them taken otherwise", p.choices_flipped));
    if (p.flip_moves > 0) facts.push_back(fmt::format("a flip moves an output by up to {:.3g}", p.flip_moves));
    if (const std::string escape = escape_text(p); !escape.empty()) facts.push_back(escape);
    if (p.not_algebraic) facts.push_back(fmt::format("no claim: {}", text_of(*p.not_algebraic)));
    for (const std::string& claim : claims_of(p)) facts.push_back("it also holds " + claim);
    for (const auto& [waiver, times] : p.waived) facts.push_back(fmt::format("{} waived {} times", waiver, times));
    page += fmt::format(
        "<tr class=\"above\"><td><b>{}</b></td><td class=\"verdict-cell {}\">{}</td><td class=\"number\">{} of "
        "{}</td><td "
        "class=\"number\">{}</td></tr>\n<tr><td class=\"soft\" colspan=\"4\">{}.{}{}</td></tr>\n",
        escaped(p.name), colour_of(p.verdict), escaped(p.verdict), p.cases, p.planned, ratio_cell(p), escaped(p.proves),
        facts.empty() ? "" : fmt::format("<br>{}", escaped(fmt::format("{}", fmt::join(facts, ", ")))),
        p.reason.empty() ? "" : fmt::format("<br>{}", escaped(p.reason)));
  }
  for (const std::string& property : left_out(result))
    page += fmt::format("<tr><td><b>{}</b></td><td class=\"verdict-cell doubt\">left out</td><td></td><td></td></tr>\n",
                        escaped(property));
  page += "</table>\n";
}

void add_witnesses(std::string& page, const std::vector<PropertyResult>& properties, const std::string& title) {
  for (const PropertyResult& p : properties) {
    if (!p.finding) continue;
    page +=
        fmt::format("<h2>{}: {}</h2>\n<p>{}</p>\n<ul>\n", escaped(title), escaped(p.name), escaped(p.finding->text));
    if (p.witness)
      page += fmt::format(
          "<li>smallest case: <code>{}</code></li>\n<li>found at: <code>{}</code>, {} shrinking steps</li>\n",
          escaped(label(p.witness->smallest)), escaped(label(p.witness->found)), p.witness->shrink_steps);
    if (p.finding->kind == "value" || p.finding->kind == "bits")
      page += fmt::format("<li>expected {:.17g}, radius {:.3g}, tolerance {:.3g}, got {:.17g} at {}</li>\n",
                          p.finding->expected, p.finding->radius, p.finding->tolerance, p.finding->got,
                          escaped(p.finding->tensor + to_string(p.finding->index)));
    for (const std::string& note : p.notes) page += fmt::format("<li>{}</li>\n", escaped(note));
    page += "</ul>\n";
    if (p.witness && !p.witness->replay.empty()) page += fmt::format("<pre>{}</pre>\n", escaped(p.witness->replay));
  }
}

void add_reference(std::string& page, const Result& result) {
  if (!result.reference) return;
  const Reference& reference = *result.reference;
  page += fmt::format(
      "<h2>The reference</h2>\n<p><code>{}</code>: <b class=\"{}\">{}</b>, by the same definition and on the "
      "candidate's "
      "cases.</p>\n<table>\n<tr><th>property</th><th>verdict</th><th class=\"number\">cases</th><th "
      "class=\"number\">error / bound</th><th class=\"number\">apart at most</th></tr>\n",
      escaped(reference.name + settings_text(reference.settings)), colour_of(reference.verdict),
      escaped(reference.verdict));
  for (std::size_t i = 0; i < reference.properties.size(); ++i) {
    const PropertyResult& p = reference.properties[i];
    double most = 0;
    const auto sums = apart(result.properties[i], p);
    for (const auto& [key, sum] : sums) most = std::max(most, sum);
    page += fmt::format(
        "<tr><td>{}</td><td class=\"verdict-cell {}\">{}</td><td class=\"number\">{} of {}</td><td "
        "class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        escaped(p.name), colour_of(p.verdict), escaped(p.verdict), p.cases, p.planned, ratio_cell(p),
        sums.empty() ? "-" : fmt::format("{:.3g}", most));
  }
  page +=
      "</table>\n<p class=\"soft\">Apart at most: both are off the same value, the definition's, each by its own part "
      "of "
      "the bound, so they differ by no more than the sum.</p>\n";
  add_witnesses(page, reference.properties, "The reference's witness");
}

void add_output(std::string& page, const Result& result) {
  if (result.verdict != Verdict::failed || result.candidate_output.empty()) return;
  page += fmt::format("<h2>The last that the candidate's process printed</h2>\n<pre>{}</pre>\n",
                      escaped_lines(tail_of(result.candidate_output, most_output)));
}

void add_errors(std::string& page, const Result& result) {
  const auto errors = output_errors(result);
  if (errors.empty()) return;
  page +=
      "<h2>Error over bound, by output</h2>\n<p class=\"soft\">How many elements had which part of their certified "
      "bound as "
      "error, over all properties whose inputs round as ordinary ones do. An octave a bar, heights logarithmic; beyond "
      "the dashed line no correct form can be. The solid line is the worst of the known-good forms.</p>\n";
  if (broke(result)) page += "<p class=\"doubt\">Worst: of the cases that passed.</p>\n";
  page += "<div class=\"figures\">\n";
  for (const OutputError& error : errors)
    page += fmt::format("<figure><figcaption><b>{}</b> worst {:.3g}{}</figcaption>\n{}</figure>\n", escaped(error.key),
                        error.worst, error.property.empty() ? "" : ", in " + escaped(error.property),
                        histogram_figure(error));
  page += "</div>\n";
}

void add_memory(std::string& page, const Result& result) {
  std::vector<Held> held;
  for (const PropertyResult& p : result.properties) held.insert(held.end(), p.held.begin(), p.held.end());
  if (held.empty()) return;
  page +=
      "<h2>Memory</h2>\n<p class=\"soft\">What was held beside inputs, outputs and gradients, by size. Dashed: what "
      "the "
      "form declares, or the contract allows.</p>\n<div class=\"figures\">\n";
  for (const auto& [series, points] : series_of(held))
    if (points.size() > 1)
      page += fmt::format("<figure><figcaption><b>{}</b></figcaption>\n{}</figure>\n", escaped(series),
                          growth_figure(points));
  page +=
      "</div>\n<table>\n<tr><th>series</th><th class=\"number\">size</th><th class=\"number\">held</th><th "
      "class=\"number\">allowed</th></tr>\n";
  for (const auto& [series, points] : series_of(held))
    for (const Held& point : points)
      page += fmt::format(
          "<tr><td>{}</td><td class=\"number\">{} {}</td><td class=\"number\">{}</td><td "
          "class=\"number\">{}</td></tr>\n",
          escaped(series), escaped(point.symbol), point.extent, bytes_text(point.bytes),
          point.allowed ? bytes_text(*point.allowed) : "-");
  page += "</table>\n";
}

void add_power(std::string& page, const Result& result) {
  if (result.kills.empty()) return;
  page += fmt::format("<h2>Power</h2>\n<p>{} of {} known-wrong forms were caught by this plan{}.</p>\n", killed(result),
                      result.kills.size(),
                      result.power_measured
                          ? ""
                          : "; it was not measured to the end, since the candidate had failed or the run was cut");
  std::vector<std::string> columns;  // in the order of the properties, then what is no property of this run
  const auto counts = kills_by_property(result);
  for (const PropertyResult& p : result.properties) columns.push_back(p.name);
  for (const auto& [property, count] : counts)
    if (!contains(columns, property)) columns.push_back(property);
  std::erase_if(columns, [&](const std::string& property) { return !counts.contains(property); });
  page += "<table class=\"matrix\">\n<tr><th>known-wrong form</th>";
  for (const std::string& property : columns)
    page += fmt::format("<th class=\"turned\">{} ({})</th>", escaped(property), counts.at(property));
  page += "</tr>\n";
  for (const Kill& kill : result.kills) {
    page += fmt::format("<tr><td><code>{}</code><br><span class=\"soft\">{}</span>", breakable(kill.form),
                        breakable(kill.summary));
    if (!kill.killed)
      page += result.power_measured ? "<br><b class=\"bad\">survived</b>"
                                    : "<br><span class=\"doubt\">not caught yet</span>";
    page += "</td>";
    for (const std::string& property : columns)
      page += kill.killed && kill.property == property
                  ? fmt::format("<td class=\"mark good\" title=\"{}\">&#9679;</td>",
                                escaped(fmt::format("{} {} at {}", kill.kind, kill.tensor, kill.where)))
                  : "<td class=\"mark\"></td>";
    page += "</tr>\n";
  }
  page += "</table>\n";
}

void add_coverage(std::string& page, const Result& result) {
  page += "<h2>Coverage</h2>\n<ul class=\"classes\">\n";
  for (const auto& [name, count] : result.coverage.cases)
    page += fmt::format("<li{}><span>{}</span><span>{}</span></li>\n", count == 0 ? " class=\"bad\"" : "",
                        escaped(name), count);
  page += "</ul>\n";
  for (const auto& [form, edge] : result.shared_edges)
    page += fmt::format("<p>The known-good form <code>{}</code> breaks at an edge that the contract names: {}.</p>\n",
                        escaped(form), escaped(edge));
  page += "<h2>Not covered</h2>\n<ul>\n";
  for (const std::string& phrase : not_covered(result)) page += fmt::format("<li>{}</li>\n", escaped(phrase));
  page += "</ul>\n";
}

void add_audit(std::string& page, const Result& result) {
  const auto lines = audit_lines(result);
  if (lines.empty()) return;
  page += fmt::format("<h2>{}</h2>\n<ul>\n", escaped(audit_title));
  for (const std::string& line : lines) page += fmt::format("<li>{}</li>\n", escaped(line));
  page += "</ul>\n";
}

void add_repeat(std::string& page, const Result& result) {
  page += fmt::format("<h2>How to repeat it</h2>\n<pre>{}</pre>\n<table>\n", escaped(command_of(result)));
  const auto row = [&](const std::string& name, const std::string& value) {
    page += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
  };
  row("plan", result.plan_hash.empty() ? "parts of " + result.plan_of : result.plan_hash);
  if (result.plan_of != result.plan_hash && !result.plan_hash.empty()) row("part of plan", result.plan_of);
  row("contract", fmt::format("{} version {}", result.kernel, result.contract_version));
  row("started", result.started);
  for (const auto& [key, value] : result.machine) row(key, value);
  page += "</table>\n";
}

}  // namespace

std::string to_html(const Result& result, const std::string& origin) {
  std::string page;
  add_head(page, result, origin);
  add_numbers(page, result);
  add_witnesses(page, result.properties, "Witness");
  add_output(page, result);
  add_properties(page, result);
  add_errors(page, result);
  add_reference(page, result);
  add_memory(page, result);
  add_power(page, result);
  add_audit(page, result);
  add_coverage(page, result);
  add_repeat(page, result);
  return page + "</body>\n</html>\n";
}

}  // namespace fractus
