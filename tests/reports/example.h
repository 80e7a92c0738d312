// Results for tests: drawn at random, and one that has something in every member.
#pragma once

#include <rapidcheck.h>

#include <string>
#include <vector>

#include "reports/result.h"

namespace fractus {

// What a candidate might call itself, to draw on a page or a terminal.
inline const std::vector<std::string>& hostile_texts() {
  static const std::vector<std::string> texts{"<script>alert(1)</script>",
                                              "</td></tr></table><img src=x onerror=y>",
                                              "a | b | c",
                                              "# heading",
                                              "```\nfence",
                                              "\x1b[2J\x1b[31m",
                                              "![x](http://y/z.png)",
                                              "*bold* _it_ ~~no~~ `code`",
                                              "]]> --> <!-- <![CDATA[",
                                              "&lt;&amp;&#x41;",
                                              "@all !1 #2 $x$",
                                              "\"quoted\" 'single'",
                                              "\xff\xfe broken \xc3",
                                              "\xef\xbf\xbe noncharacter",
                                              "- item\n  - item\n",
                                              "1. one",
                                              "    indented",
                                              "www.example.com https://example.com",
                                              "\u202eback",
                                              "a\\|b\\",
                                              "--- | ---",
                                              "=====",
                                              ""};
  return texts;
}

inline rc::Gen<std::string> any_text() {
  return rc::gen::oneOf(rc::gen::elementOf(hostile_texts()), rc::gen::just(std::string("plain words")),
                        rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '~')));
}

// As to_json has them: no bytes that are not UTF-8, which no JSON can hold.
inline rc::Gen<std::string> any_json_text() {
  return rc::gen::suchThat(any_text(), [](const std::string& text) { return text.find('\xff') == std::string::npos; });
}

inline rc::Gen<double> any_number() {
  return rc::gen::oneOf(rc::gen::arbitrary<double>(), rc::gen::just(0.0), rc::gen::just(0.25),
                        rc::gen::just(1e300 * 1e300), rc::gen::just(-1e300 * 1e300));
}

inline rc::Gen<std::int64_t> any_count() { return rc::gen::inRange<std::int64_t>(0, 1'000'000); }

inline std::map<std::string, double> any_ratios() {
  std::map<std::string, double> ratios;
  for (const char* key : {"float32 y", "float64 y", "float32 dq"})
    if (*rc::gen::arbitrary<bool>()) ratios[key] = *any_number();
  return ratios;
}

inline Case example_case(const std::string& property) {
  Case c;
  c.kernel = "linear_attention";
  c.property = property;
  c.variant = "layers";
  c.dims = {{"G", 2}, {"T", 5}};
  c.fill = "feature";
  c.seed = 7;
  c.absent = {"S0"};
  c.cotangents = {"y"};
  c.frozen = {"k"};
  c.layouts["q"] = Layout::transposed;
  c.pieces = {2, 3};
  c.settings["block"] = 4;
  return c;
}

inline Remark any_remark(const std::string& text) {
  return {.kind = "cast", .operation = text, .place = text, .detail = "float64 to float32", .count = *any_count()};
}

inline PropertyResult any_property(const std::string& name, const std::string& text) {
  PropertyResult p;
  p.name = name;
  p.proves = "what " + name + " proves";
  p.planned = *rc::gen::inRange<std::int64_t>(1, 300);
  p.cases = *rc::gen::element(p.planned, p.planned, p.planned, p.planned / 2, std::int64_t{0});
  p.elements = *any_count();
  p.undecidable = *rc::gen::inRange<std::int64_t>(0, 1 + p.elements / 3);
  p.choices_in_doubt = *any_count();
  p.choices_flipped = *any_count();
  p.bit_equal = *any_count();
  p.flip_moves = *rc::gen::element(0.0, 0.25);
  p.escape = *rc::gen::element(0.0, 0.004);
  p.worst_ratio = any_ratios();
  p.known_good_ratio = any_ratios();
  for (const auto& [key, ratio] : p.worst_ratio)
    p.histogram[key].count[*rc::gen::inRange<std::size_t>(0, Histogram::bins)] = *any_count();
  if (*rc::gen::arbitrary<bool>())
    for (const std::int64_t extent : {64, 256})
      p.held.push_back({"forward, G 2", "T", extent, *any_count(),
                        *rc::gen::element(std::optional<std::int64_t>{}, std::optional<std::int64_t>{5})});
  if (*rc::gen::inRange(0, 4) == 0) {
    p.finding = Finding{.kind = *rc::gen::element<std::string>("value", "crashed", "bits"),
                        .tensor = "y",
                        .text = text,
                        .broken = *rc::gen::arbitrary<bool>(),
                        .waiver = "",
                        .index = {0, 3}};
    p.finding->expected = *any_number();
    p.finding->got = *any_number();
    p.witness = Witness{.found = example_case(name),
                        .smallest = example_case(name),
                        .shrink_steps = 3,
                        .fixture = "f.json",
                        .replay = text};
  }
  if (*rc::gen::inRange(0, 5) == 0) p.waived["shared-edges"] = 2;
  if (*rc::gen::inRange(0, 8) == 0) p.algebra = text;
  if (*rc::gen::inRange(0, 8) == 0) p.not_algebraic = any_remark(text);
  if (*rc::gen::arbitrary<bool>()) p.claims = {text};
  if (*rc::gen::arbitrary<bool>()) p.notes = {text, "a second note"};
  p.seconds = 0.5;
  return p;
}

// Drawn inside a property. Verdict and reasons are not set: conclude() sets them.
inline Result any_result() {
  const std::string text = *any_json_text();
  Result r;
  r.kernel = "linear_attention";
  r.candidate = *rc::gen::element(std::string("chunked"), text);
  r.summary = text;
  r.settings = {{"block", 64}};
  r.contract_version = 2;
  r.plan_hash = r.plan_of = std::string(64, 'a');
  r.seed = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 53);
  r.preset = "smoke";
  r.dtypes = *rc::gen::element(std::vector<std::string>{"float32"}, std::vector<std::string>{"float32", "float64"});
  r.plan_properties = {"contract", "exact", "rounding", "memory", "power"};
  for (const char* name : {"contract", "exact", "rounding", "memory"}) r.properties.push_back(any_property(name, text));
  if (*rc::gen::inRange(0, 3) == 0) {
    r.reference = Reference{.name = "looped", .summary = text, .settings = {{"block", 4}}};
    for (const PropertyResult& p : r.properties) r.reference->properties.push_back(any_property(p.name, text));
    r.reference->output = text;
  }
  r.forward_only = *rc::gen::arbitrary<bool>();
  if (*rc::gen::inRange(0, 3) == 0) r.waived = {"shared-edges", "memory-growth"};
  r.power_measured = true;
  for (int i = 0; i < 6; ++i) {
    Kill kill{.form = "wrong_" + std::to_string(i), .summary = text};
    if (*rc::gen::inRange(0, 8) != 0) {
      kill.killed = true;
      kill.property = *rc::gen::element<std::string>("contract", "exact", "rounding", "memory");
      kill.kind = "value";
      kill.tensor = "y";
      kill.where = text;
    }
    r.kills.push_back(kill);
  }
  if (*rc::gen::inRange(0, 3) == 0) r.backward_alone = {"wrong_7", "wrong_8"};
  r.known_good = {"einsum", "looped"};
  if (*rc::gen::inRange(0, 4) == 0) r.shared_edges["einsum"] = text;
  if (*rc::gen::inRange(0, 6) == 0) r.complaints = {"the known-good form fails: " + text};
  if (*rc::gen::inRange(0, 8) == 0) r.trouble = "it cannot be loaded: " + text;
  if (*rc::gen::inRange(0, 8) == 0) r.unfit = "no sequence fills its block";
  if (*rc::gen::inRange(0, 5) == 0) r.cut = "the budget of 1 s was spent before the plan was through";
  for (const char* property : {"rounding", "contract"})
    r.lines[property]["y T 64-127"] = {.candidate = *rc::gen::element(0.1, 0.9),
                                       .known_good = *rc::gen::element(0.1, 0.3),
                                       .cases = *rc::gen::inRange<std::int64_t>(0, 20),
                                       .where = text};
  r.coverage.cases = {{"dtype float32", 3}, {"T = 0", *rc::gen::element<std::int64_t>(0, 2)}, {text, 1}};
  r.coverage.largest[DType::float32] = {{"T", 300}, {"G", 80}};
  r.machine = {{"cpu", "some cpu"}, {"cores", "2"}, {"torch", text}};
  if (*rc::gen::arbitrary<bool>()) r.audit = {any_remark(text), any_remark("aten::to")};
  r.candidate_output = text + "\n" + text;
  r.started = "2026-11-30T10:00:00Z";
  r.seconds = 12.5;
  return r;
}

// One draw, always the same.
template <class Draw>
Result sampled(Draw draw) {
  return rc::gen::exec(draw)(rc::Random(7), 30).value();
}

}  // namespace fractus
