// The pages: whatever a candidate calls itself or says stays text, each page is of its size, and a pipeline is red
// wherever the verdict is not EQUIVALENT.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reports/facts.h"
#include "reports/figures.h"
#include "reports/result.h"
#include "reports/verdict.h"
#include "reports/words.h"
#include "tests/oracle/property.h"
#include "tests/reports/example.h"

namespace fractus {
namespace {

Result concluded() {
  Result result = any_result();
  conclude(result);
  return result;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Protects: an error's part of its bound is counted in the octave that it lies in, and an edge in the one below it.
TEST(Histogram, BinsAreOctaves) {
  EXPECT_TRUE(holds(200, [] {
    const int exponent = *rc::gen::inRange(Histogram::smallest, 0);
    const double within = 1 + *rc::gen::inRange(1, 1 << 20) * 0x1p-20;  // (1, 2]
    const std::size_t bin = Histogram::bin_of(std::ldexp(within, exponent));
    RC_ASSERT(bin == static_cast<std::size_t>(exponent - Histogram::smallest + 2));
  }));
  EXPECT_EQ(Histogram::bin_of(0), 0u);
  EXPECT_EQ(Histogram::bin_of(1e-300), 1u);
  EXPECT_EQ(Histogram::bin_of(0x1p-10), 1u);
  EXPECT_EQ(Histogram::bin_of(std::nextafter(0x1p-10, 1)), 2u);
  EXPECT_EQ(Histogram::bin_of(1), Histogram::bins - 2);
  EXPECT_EQ(Histogram::bin_of(std::nextafter(1.0, 2)), Histogram::bins - 1);
  EXPECT_EQ(Histogram::bin_of(INFINITY), Histogram::bins - 1);
  EXPECT_EQ(Histogram::bin_of(NAN), Histogram::bins - 1);
}

// Protects the browser of whoever opens the page: no tag, attribute or address that is not ours.
TEST(Html, ForeignTextStaysText) {
  EXPECT_TRUE(holds(100, [] {
    const std::string page = to_html(concluded(), *any_json_text());
    // Ours are none of these; escaped, theirs have no angle bracket and no quotation mark of their own.
    for (const char* part :
         {"<script", "<img", "<b>it", "<link", " src=\"", " href=\"", "url(", "@import", "<![CDATA["})
      RC_ASSERT(page.find(part) == std::string::npos);
    RC_ASSERT(count_of(page, "<table") == count_of(page, "</table>"));
    RC_ASSERT(page.find('\x1b') == std::string::npos);
  }));
}

// Protects: a comment has room for the page whatever the result holds, and it still says the verdict first.
TEST(Markdown, FitsAComment) {
  EXPECT_TRUE(holds(20, [] {
    Result result = concluded();
    const int many = *rc::gen::element(1, 300, 3000);
    const std::string word = *any_json_text();
    std::string longer;
    while (longer.size() < 20'000) longer += word + "| `";
    for (int i = 0; i < many; ++i) {
      result.kills.push_back({.form = fmt::format("wrong {} {}", i, word), .summary = longer.substr(0, 300)});
      result.coverage.cases[fmt::format("class {} {}", i, word)] = i;
      result.reasons.push_back(longer.substr(0, 2000));
    }
    result.candidate = longer;
    result.candidate_output = longer;
    const std::string page = to_markdown(result);
    RC_ASSERT(page.size() <= most_markdown);
    RC_ASSERT(page.starts_with(fmt::format("# {}: ", name(result.verdict))));
    RC_ASSERT(count_of(page, "\n<details>\n") == count_of(page, "\n</details>\n"));
  }));
}

// Protects the pipeline: a job that reads failures and errors alone is red exactly where the verdict is not EQUIVALENT.
TEST(Junit, IsRedWhereTheVerdictIsNotEquivalent) {
  EXPECT_TRUE(holds(200, [] {
    Result result = concluded();
    if (*rc::gen::inRange(0, 3) == 0) {  // else hardly any draw is a right form
      result.complaints.clear();
      result.trouble = result.unfit = result.cut = "";
      result.reference.reset();
      result.lines.clear();
      for (PropertyResult& p : result.properties)
        p.finding.reset(), p.witness.reset(), p.cases = p.planned, p.undecidable = 0;
      for (Kill& kill : result.kills) kill.killed = true;
      for (auto& [name, count] : result.coverage.cases) count = 1;
      conclude(result);
    }
    RC_TAG(result.verdict == Verdict::equivalent);
    const std::string xml = to_junit(result);
    const bool red = xml.find("<failure") != std::string::npos || xml.find("<error") != std::string::npos;
    RC_ASSERT(red == (result.verdict != Verdict::equivalent));
    RC_ASSERT(xml.find("\xef\xbf\xbe") == std::string::npos && xml.find('\x1b') == std::string::npos);
  }));
}

TEST(Junit, SaysWhatEachPropertyCameTo) {
  Result result;
  for (const auto& [name, verdict] :
       {std::pair("one", "PASSED"), std::pair("two", "DIFFERENT"), std::pair("three", "FAILED"),
        std::pair("four", "UNDECIDED"), std::pair("five", "NOT RUN"), std::pair("six", "WAIVED"),
        std::pair("seven", "NOT ALGEBRAIC")}) {
    PropertyResult p;
    p.name = name;
    p.verdict = verdict;
    result.properties.push_back(p);
  }
  result.verdict = Verdict::different;
  result.kills = {{.form = "wrong_caught", .killed = true}, {.form = "wrong_lives"}};
  result.power_measured = true;
  const std::string xml = to_junit(result);
  EXPECT_NE(xml.find("tests=\"10\" failures=\"4\" errors=\"1\" skipped=\"2\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("name=\"two\" time=\"0.000\">\n      <failure type=\"DIFFERENT\""), std::string::npos);
  EXPECT_NE(xml.find("name=\"three\" time=\"0.000\">\n      <error"), std::string::npos);
  EXPECT_NE(xml.find("name=\"five\" time=\"0.000\">\n      <skipped"), std::string::npos);
  EXPECT_NE(xml.find("name=\"wrong_lives\" time=\"0.000\">\n      <failure type=\"survived\""), std::string::npos);
  result.power_measured = false;
  EXPECT_NE(to_junit(result).find("<skipped type=\"not measured\""), std::string::npos);
}

// Protects: figures of sizes and counts that nobody measured are still figures.
TEST(Figures, TakeAnyNumbers) {
  EXPECT_TRUE(holds(200, [] {
    OutputError error{.key = *any_text(), .worst = *any_number(), .known_good = *any_number()};
    for (std::int64_t& n : error.histogram.count) n = *rc::gen::element<std::int64_t>(0, 1, 5, std::int64_t{1} << 40);
    std::vector<Held> held(2);
    for (Held& point : held) {
      point.extent = *rc::gen::arbitrary<std::int64_t>();
      point.bytes = *rc::gen::arbitrary<std::int64_t>();
      point.allowed = *rc::gen::element(std::optional<std::int64_t>{}, std::optional<std::int64_t>{INT64_MAX});
    }
    for (const std::string& svg : {histogram_figure(error), growth_figure(held)}) {
      RC_ASSERT(svg.find("nan") == std::string::npos || error.key.find("nan") != std::string::npos);
      RC_ASSERT(svg.find("\"inf") == std::string::npos && svg.find("<script") == std::string::npos);
    }
  }));
}

// Protects: every element that had a bound is in one histogram, and the worst of a key is in its last filled bar.
TEST(Facts, OutputsAreGatheredOverProperties) {
  Result result;
  for (const double ratio : {0.3, 0.9, 0.05}) {
    PropertyResult p;
    p.name = fmt::format("p{}", result.properties.size());
    p.worst_ratio["float32 y"] = ratio;
    p.known_good_ratio["float32 y"] = ratio / 2;
    p.histogram["float32 y"].add(ratio);
    result.properties.push_back(p);
  }
  const auto errors = output_errors(result);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].worst, 0.9);
  EXPECT_EQ(errors[0].property, "p1");
  EXPECT_EQ(errors[0].known_good, 0.45);
  EXPECT_EQ(std::count(errors[0].histogram.count.begin(), errors[0].histogram.count.end(), 1), 3);
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(clipped("caf\u00e9s", 4), "caf ... (3 bytes more)");
  EXPECT_EQ(escaped("<a href='x'>&\"\x1b"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\x1b");
}

}  // namespace
}  // namespace fractus
