// The page for a merge request. CommonMark with GitHub's tables; what a candidate says stays text, and the page is
// short enough for a comment whatever it says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "properties/over_field.h"
#include "reports/facts.h"
#include "reports/result.h"
#include "reports/words.h"

namespace fractus {
namespace {

// How much of a result goes on the page.
struct Room {
  std::size_t rows;  // of a table or a list
  std::size_t text;  // bytes of one text
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Text of a candidate may hold anything: in a table cell a bar or a line break would end the cell, at the start of a
// line a number would make a list, elsewhere a tag, a link, a code span or a call of somebody's name (@all) would
// become one. A backslash keeps any of the characters that do this what it is.
std::string plain(std::string_view text, const Room& room) {
  std::string shown = visible(clipped(text, room.text));
  shown.erase(0, shown.find_first_not_of(' '));
  const std::size_t digits = std::min(shown.find_first_not_of("0123456789"), shown.size());
  std::string safe;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char c = shown[i], before = i > 0 ? shown[i - 1] : ' ', after = i + 1 < shown.size() ? shown[i + 1] : ' ';
    const auto one_of = [c](std::string_view characters) { return characters.find(c) != std::string_view::npos; };
    const bool begins = (i == 0 && one_of("+-=")) || (i > 0 && i == digits && one_of(".)"));
    const bool links = (c == ':' && after == '/') || (c == '.' && i >= 3 && shown.compare(i - 3, 3, "www") == 0);
    if (begins || links || one_of("\\`*[]<>|~&@$!#") || (c == '_' && !(is_word(before) && is_word(after))))
      safe += '\\';
    safe += c;
  }
  return safe;
}

// A code span that no backtick inside it can end. GitHub's tables end a cell at a bar even there, unless a backslash
// stands before it.
std::string code(std::string_view text, const Room& room, bool in_table = false) {
  const std::string shown = visible(clipped(text, room.text));
  std::size_t longest = 0, run = 0;
  for (const char c : shown) longest = std::max(longest, run = c == '`' ? run + 1 : 0);
  const std::string fence(longest + 1, '`');
  const bool padded = longest > 0 || shown.empty();
  std::string inside;
  for (const char c : shown) inside += in_table && c == '|' ? std::string("\\|") : std::string(1, c);
  return fmt::format("{}{}{}{}{}", fence, padded ? " " : "", inside, padded ? " " : "", fence);
}

// Behind a line that opens it. A blank line before and behind lets CommonMark read what is inside as Markdown.
std::string folded(const std::string& summary, const std::string& body) {
  return fmt::format("<details>\n<summary>{}</summary>\n\n{}\n</details>\n\n", escaped(summary), body);
}

// At most the rows that there is room for.
std::string rows(const std::vector<std::string>& lines, const Room& room, const std::string& more) {
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), room.rows); ++i) text += lines[i];
  if (lines.size() > room.rows) text += fmt::format(fmt::runtime(more), lines.size() - room.rows);
  return text;
}

std::string ratio_text(const std::map<std::string, double>& by_tensor, const Room& room) {
  std::vector<std::string> parts;
  for (const auto& [tensor, ratio] : by_tensor) parts.push_back(fmt::format("{} {:.3g}", plain(tensor, room), ratio));
  if (parts.size() > room.rows) parts.resize(room.rows);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string ratio_cell(const PropertyResult& p) {
  if (p.worst_ratio.empty()) return p.bit_equal > 0 ? fmt::format("{} bit-equal", p.bit_equal) : "-";
  return fmt::format("{:.3g}", p.worst());
}

void add_head(std::string& page, const Result& result, const std::string& origin, const Room& room) {
  const std::string settings = plain(settings_text(result.settings), room);
  page += fmt::format("# {}: {} {}{}{}\n\n", name(result.verdict), plain(result.kernel, room),
                      code(result.candidate, room), settings.empty() ? "" : " ", settings);
  std::vector<std::string> lines;
  for (const std::string& reason : result.reasons) lines.push_back(fmt::format("- {}\n", plain(reason, room)));
  if (result.reasons.empty()) lines.push_back(fmt::format("- {}\n", plain(proven_text(result), room)));
  page += rows(lines, room, "- {} more reasons\n");
  if (!result.waived.empty()) page += fmt::format("- {}\n", plain(waivers_text(result), room));
  if (!origin.empty()) page += fmt::format("- {}\n", plain(origin, room));
  if (!result.shards.empty())
    page += fmt::format("- put together from {} shards of plan {}\n", result.shards.size(),
                        code(std::string_view(result.plan_of).substr(0, 16), room));
  page += "\n";
}

// What each property says, and what there is to say of this run beside the table.
std::string explained(const PropertyResult& p, const Room& room) {
  std::string text = fmt::format("- **{}**: {}.", plain(p.name, room), plain(p.proves, room));
  if (p.flip_moves > 0)
    text += fmt::format(
        " Of {} choices in doubt the form took {} otherwise than the definition; one that goes the other way moves an "
        "output by up to {:.3g}.",
        p.choices_in_doubt, p.choices_flipped, p.flip_moves);
  if (std::string escape = escape_text(p); !escape.empty()) {
    escape.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(escape.front())));
    text += fmt::format(" {}.", plain(escape, room));
  }
  if (p.not_algebraic) text += fmt::format(" No claim: {}.", plain(text_of(*p.not_algebraic), room));
  for (const std::string& claim : claims_of(p)) text += fmt::format(" It also holds {}.", plain(claim, room));
  if (!p.reason.empty()) text += fmt::format(" {}.", plain(p.reason, room));
  for (const auto& [waiver, times] : p.waived)
    text += fmt::format(" Waived: {} ({} cases).", plain(waiver, room), times);
  text += "\n";
  std::vector<std::string> notes;
  for (const std::string& note : p.notes) notes.push_back(fmt::format("  - {}\n", plain(note, room)));
  return text + rows(notes, room, "  - {} more notes\n");
}

void add_properties(std::string& page, const Result& result, const Room& room) {
  page +=
      "## What was proven\n\n| property | verdict | cases | elements | undecidable | in doubt | worst error over bound "
      "|\n|---|---|--:|--:|--:|--:|--:|\n";
  std::vector<std::string> lines, words;
  for (const PropertyResult& p : result.properties) {
    lines.push_back(fmt::format("| {} | {} | {} of {} | {} | {} | {} | {} |\n", plain(p.name, room), p.verdict, p.cases,
                                p.planned, p.elements, p.undecidable, p.choices_in_doubt, ratio_cell(p)));
    words.push_back(explained(p, room));
  }
  for (const std::string& property : left_out(result))
    lines.push_back(fmt::format("| {} | left out | | | | | |\n", plain(property, room)));
  page += rows(lines, room, "| {} more | | | | | | |\n") + "\n";
  page += folded("What each property proves, and notes of this run", rows(words, room, "- {} more properties\n"));
}

void add_errors(std::string& page, const Result& result, const Room& room) {
  std::vector<std::string> lines;
  for (const OutputError& error : output_errors(result))
    lines.push_back(fmt::format("| {} | {:.3g} | {} | {} |\n", plain(error.key, room), error.worst,
                                error.property.empty() ? "-" : plain(error.property, room),
                                error.known_good ? fmt::format("{:.3g}", *error.known_good) : "-"));
  if (lines.empty()) return;
  page += "## Worst error over bound, by output\n\n| output | worst | in | known-good forms |\n|---|--:|---|--:|\n" +
          rows(lines, room, "| {} more | | | |\n") + "\n";
  if (broke(result)) page += "Of the cases that passed; those of the witnesses are beyond the bound.\n\n";
}

void add_witnesses(std::string& page, const std::vector<PropertyResult>& properties, const std::string& title,
                   const Room& room) {
  std::size_t told = 0;
  for (const PropertyResult& p : properties) {
    if (!p.finding || ++told > room.rows) continue;
    page += fmt::format("## {}: {}\n\n{}\n\n", title, plain(p.name, room), plain(p.finding->text, room));
    if (p.witness)
      page += fmt::format("- smallest case: {}\n- found at: {}, {} shrinking steps\n",
                          code(label(p.witness->smallest), room), code(label(p.witness->found), room),
                          p.witness->shrink_steps);
    if (p.finding->kind == "value" || p.finding->kind == "bits")
      page += fmt::format("- expected {:.17g}, radius {:.3g}, tolerance {:.3g}, got {:.17g} at {}\n",
                          p.finding->expected, p.finding->radius, p.finding->tolerance, p.finding->got,
                          plain(p.finding->tensor + to_string(p.finding->index), room));
    if (p.witness && !p.witness->replay.empty()) page += fmt::format("- replay: {}\n", code(p.witness->replay, room));
    page += "\n";
  }
}

void add_reference(std::string& page, const Result& result, const Room& room) {
  if (!result.reference) return;
  const Reference& reference = *result.reference;
  page += fmt::format(
      "## The reference\n\n{} {}: {}, by the same definition and on the candidate's cases.\n\n| property | verdict | "
      "cases "
      "| worst error over bound | apart at most |\n|---|---|--:|--:|---|\n",
      code(reference.name, room), plain(settings_text(reference.settings), room), reference.verdict);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < reference.properties.size(); ++i) {
    const PropertyResult& p = reference.properties[i];
    const std::string sums = ratio_text(apart(result.properties[i], p), room);
    lines.push_back(fmt::format("| {} | {} | {} of {} | {} | {} |\n", plain(p.name, room), p.verdict, p.cases,
                                p.planned, ratio_cell(p), sums.empty() ? "-" : sums));
  }
  page += rows(lines, room, "| {} more | | | | |\n");
  page +=
      "\nApart at most: candidate and reference are each off the same value, the definition's, by their own part of "
      "the bound, so they differ by no more than the sum (triangle inequality). Undecidable elements, and calls with a "
      "choice in doubt, where each may take its own branch, are not counted.\n\n";
  add_witnesses(page, reference.properties, "The reference's witness", room);
}

void add_output(std::string& page, const Result& result, const Room& room) {
  if (result.verdict != Verdict::failed || result.candidate_output.empty()) return;
  page += fmt::format(
      "## The last that the candidate's process printed\n\n{}\n\n",
      indented(visible_lines(tail_of(result.candidate_output, std::min<std::size_t>(2000, 4 * room.text)))));
}

void add_power(std::string& page, const Result& result, const Room& room) {
  if (result.kills.empty()) return;
  page += fmt::format(
      "## Power\n\n{} of {} known-wrong forms were caught by this plan{}.\n\n", killed(result), result.kills.size(),
      result.power_measured ? ""
                            : "; it was not measured to the end, since the candidate had failed or the run was cut");
  std::vector<std::string> first, lines;
  for (const std::string& form : survivors(result))
    first.push_back(fmt::format("- **survived**: {}\n", plain(form, room)));
  if (!first.empty()) page += rows(first, room, "- {} more survived\n") + "\n";
  first.clear();
  for (const auto& [property, count] : kills_by_property(result))
    first.push_back(fmt::format("| {} | {} |\n", plain(property, room), count));
  if (!first.empty())
    page += "| caught first by | known-wrong forms |\n|---|--:|\n" + rows(first, room, "| {} more | |\n") + "\n";
  for (const Kill& kill : result.kills)
    lines.push_back(fmt::format("| {}: {} | {} | {} | {} |\n", plain(kill.form, room), plain(kill.summary, room),
                                kill.killed             ? plain(kill.property, room)
                                : result.power_measured ? "**survived**"
                                                        : "-",
                                plain(kill.kind + " " + kill.tensor, room), plain(kill.where, room)));
  page += folded(fmt::format("Kill table: {} known-wrong forms", lines.size()),
                 "| known-wrong form | caught by | as | at |\n|---|---|---|---|\n" +
                     rows(lines, room, "| {} more, in the JSON result | | | |\n"));
}

void add_coverage(std::string& page, const Result& result, const Room& room) {
  const auto& classes = result.coverage.cases;
  page += fmt::format("## Coverage\n\n{} of {} classes of cases were covered.\n\n",
                      classes.size() - result.coverage.missing().size(), classes.size());
  std::vector<std::string> lines;
  for (const auto& [name, count] : classes)
    if (count > 0) lines.push_back(fmt::format("| {} | {} |\n", plain(name, room), count));
  if (!lines.empty())
    page += folded("Classes of cases", "| class | cases |\n|---|--:|\n" + rows(lines, room, "| {} more | |\n"));
  lines.clear();
  for (const auto& [form, edge] : result.shared_edges)
    lines.push_back(
        fmt::format("- the known-good form {} breaks at an edge that the contract names (`shared-edges`): {}\n",
                    code(form, room), plain(edge, room)));
  if (!lines.empty()) page += rows(lines, room, "- {} more\n") + "\n";
  page += "## Not covered\n\n";
  lines.clear();
  for (const std::string& phrase : not_covered(result)) lines.push_back(fmt::format("- {}\n", plain(phrase, room)));
  page += rows(lines, room, "- {} more\n") + "\n";
}

void add_audit(std::string& page, const Result& result, const Room& room) {
  std::vector<std::string> lines;
  for (const std::string& line : audit_lines(result)) lines.push_back(fmt::format("- {}\n", plain(line, room)));
  if (!lines.empty()) page += fmt::format("## {}\n\n{}\n", audit_title, rows(lines, room, "- {} more\n"));
}

void add_repeat(std::string& page, const Result& result, const Room& room) {
  page += fmt::format("## How to repeat it\n\n{}\n\n| | |\n|---|---|\n",
                      code(command_of(result), {room.rows, 4 * room.text}));
  std::vector<std::string> lines;
  const auto row = [&](const std::string& name, const std::string& value) {
    lines.push_back(fmt::format("| {} | {} |\n", plain(name, room), value));
  };
  if (!result.plan_hash.empty()) row("plan", code(result.plan_hash, room, true));
  if (result.plan_of != result.plan_hash) row("part of plan", code(result.plan_of, room, true));
  row("contract", plain(fmt::format("{} version {}", result.kernel, result.contract_version), room));
  row("started", plain(result.started, room));
  row("time", time_text(result.seconds));
  for (const auto& [key, value] : result.machine) row(key, plain(value, room));
  page += rows(lines, room, "| {} more | |\n");
}

std::string page_of(const Result& result, const std::string& origin, const Room& room) {
  std::string page;
  add_head(page, result, origin, room);
  add_witnesses(page, result.properties, "Witness", room);
  add_output(page, result, room);
  add_properties(page, result, room);
  add_errors(page, result, room);
  add_reference(page, result, room);
  add_power(page, result, room);
  add_audit(page, result, room);
  add_coverage(page, result, room);
  add_repeat(page, result, room);
  return page;
}

}  // namespace

std::string to_markdown(const Result& result, const std::string& origin) {
  // A whole run of today's kernels fits at once. What does not loses rows of its long tables first, then text.
  Room room{400, 1000};
  std::string page = page_of(result, origin, room);
  while (page.size() > most_markdown && room.text > 20) {
    if (room.rows > 8)
      room.rows /= 2;
    else
      room.text /= 2;
    page = page_of(result, origin, room);
  }
  return page;
}

}  // namespace fractus
