// JUnit XML, as GitLab, GitHub's reporters and Jenkins read it. They colour a pipeline by its failures and errors, and
// pass what was skipped; so whatever keeps a verdict from EQUIVALENT is a failure or an error of the suite "verdict",
// and a skipped case is never the only sign of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "properties/over_field.h"
#include "reports/facts.h"
#include "reports/result.h"
#include "reports/words.h"

namespace fractus {
namespace {

constexpr std::size_t most_text = 4000;  // of a message; the whole of it is in the JSON result

struct TestCase {
  std::string name;
  std::string outcome;  // failure, error or skipped; empty: passed
  std::string type, message, text;
  double seconds = 0;
};

struct Suite {
  std::string name;
  std::vector<TestCase> cases;
};

std::string attribute(const char* name, std::string_view value) {
  return fmt::format(" {}=\"{}\"", name, escaped(clipped(value, most_text)));
}

std::string duration(double seconds) { return fmt::format("{:.3f}", std::isfinite(seconds) ? seconds : 0.0); }

void append(std::string& xml, const TestCase& c, const std::string& class_name) {
  xml += fmt::format("    <testcase{}{} time=\"{}\"", attribute("classname", class_name), attribute("name", c.name),
                     duration(c.seconds));
  if (c.outcome.empty()) {
    xml += "/>\n";
    return;
  }
  xml += fmt::format(">\n      <{}{}{}>{}</{}>\n    </testcase>\n", c.outcome, attribute("type", c.type),
                     attribute("message", c.message), escaped_lines(clipped(c.text, most_text)), c.outcome);
}

std::string counts(const std::vector<Suite>& suites, double seconds) {
  const auto count = [&](const std::string& outcome) {
    std::ptrdiff_t n = 0;
    for (const Suite& suite : suites)
      n += std::count_if(suite.cases.begin(), suite.cases.end(),
                         [&](const TestCase& c) { return outcome == "tests" || c.outcome == outcome; });
    return n;
  };
  return fmt::format(" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\"", count("tests"),
                     count("failure"), count("error"), count("skipped"), duration(seconds));
}

TestCase verdict_case(const Result& result, const std::string& origin) {
  TestCase c{.name = "verdict", .type = std::string(name(result.verdict))};
  if (result.verdict == Verdict::equivalent) return c;
  c.outcome = result.verdict == Verdict::failed ? "error" : "failure";
  c.message = result.reasons.empty() ? c.type : result.reasons.front();
  c.text = fmt::format("{}\n{}\n{}\n", fmt::join(result.reasons, "\n"), command_of(result), origin);
  return c;
}

TestCase property_case(const PropertyResult& p) {
  TestCase c{.name = p.name, .type = p.verdict, .message = p.reason, .seconds = p.seconds};
  if (p.verdict == "PASSED" || p.verdict == "WAIVED") return c;
  // What was not tried shows nothing; what was tried and not decided is no pass.
  c.outcome = p.verdict == "FAILED"                                    ? "error"
              : p.verdict == "NOT RUN" || p.verdict == "NOT ALGEBRAIC" ? "skipped"
                                                                       : "failure";
  if (p.not_algebraic && c.message.empty()) c.message = "no claim: " + text_of(*p.not_algebraic);
  c.text = p.proves + "\n" + p.reason + "\n";
  if (p.finding) {
    c.message = p.finding->text;
    c.text = p.finding->text + "\n";
  }
  if (p.witness)
    c.text += fmt::format("smallest case: {}\nfound at: {}\n{}\n", label(p.witness->smallest), label(p.witness->found),
                          p.witness->replay);
  for (const std::string& note : p.notes) c.text += note + "\n";
  return c;
}

TestCase kill_case(const Kill& kill, const Result& result) {
  TestCase c{.name = kill.form, .message = kill.summary, .text = kill.summary};
  if (kill.killed) return c;
  c.outcome = result.power_measured && !result.partial ? "failure" : "skipped";
  c.type =
      result.power_measured ? (result.partial ? "not caught by this part of the plan" : "survived") : "not measured";
  return c;
}

}  // namespace

std::string to_junit(const Result& result, const std::string& origin) {
  std::vector<Suite> suites{{"verdict", {verdict_case(result, origin)}}};
  for (const PropertyResult& p : result.properties) suites.push_back({p.name, {property_case(p)}});
  if (result.reference) {
    Suite suite{"reference " + result.reference->name, {}};
    for (const PropertyResult& p : result.reference->properties) suite.cases.push_back(property_case(p));
    suites.push_back(std::move(suite));
  }
  if (!result.audit.empty()) {  // for a reader; none of it keeps a verdict from EQUIVALENT
    Suite suite{"audit", {}};
    for (const std::string& line : audit_lines(result)) suite.cases.push_back({.name = line});
    suites.push_back(std::move(suite));
  }
  if (!result.kills.empty()) {
    Suite suite{"power", {}};
    for (const Kill& kill : result.kills) suite.cases.push_back(kill_case(kill, result));
    suites.push_back(std::move(suite));
  }
  if (const auto out = left_out(result); !out.empty()) {
    Suite suite{"left out", {}};
    for (const std::string& property : out)
      suite.cases.push_back({.name = property, .outcome = "skipped", .type = "left out", .message = "not in this run"});
    suites.push_back(std::move(suite));
  }

  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  xml += fmt::format(
      "<testsuites{}{}>\n",
      attribute("name", fmt::format("{} {}{}", result.kernel, result.candidate, settings_text(result.settings))),
      counts(suites, result.seconds));
  for (const Suite& suite : suites) {
    double seconds = 0;
    for (const TestCase& c : suite.cases) seconds += c.seconds;
    xml += fmt::format("  <testsuite{}{}{}>\n", attribute("name", suite.name), counts({suite}, seconds),
                       attribute("timestamp", result.started));
    for (const TestCase& c : suite.cases)
      append(xml, c, fmt::format("{}.{}.{}", result.kernel, result.candidate, suite.name));
    xml += "  </testsuite>\n";
  }
  return xml + "</testsuites>\n";
}

}  // namespace fractus
