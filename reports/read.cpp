#include "reports/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "attest/strict_json.h"
#include "properties/fields.h"
#include "reports/words.h"

namespace fractus {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& member, const std::string& why) {
  throw std::runtime_error(fmt::format("{}: {}", member, visible(why)));
}

std::string shown(const json& value) {
  constexpr std::size_t most = 80;
  const std::string text = value.is_structured() ? value.type_name() : value.dump(-1, ' ', true);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

// A value and the way to it, for errors: "properties[3].finding".
struct Node {
  const json& value;
  std::string path;

  Node at(const char* name) const {
    if (!value.is_object()) refuse(path, fmt::format("wanted an object, got {}", shown(value)));
    const auto found = value.find(name);
    const std::string member = path.empty() ? name : fmt::format("{}.{}", path, name);
    if (found == value.end()) refuse(member, "the member is missing");
    return {*found, member};
  }

  bool has(const char* name) const { return value.is_object() && value.contains(name); }

  template <class T>
  T get(const char* name, const char* wanted) const {
    const Node member = at(name);
    try {
      if (Fits<T>::test(member.value)) return member.value.get<T>();
    } catch (const json::exception&) {  // of another type
    }
    refuse(member.path, fmt::format("wanted {}, got {}", wanted, shown(member.value)));
  }

  std::string text(const char* name) const { return get<std::string>(name, "a string"); }
  // How often something was seen. Views and merges add such numbers up, so no sum of them may leave the range.
  std::int64_t count() const {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (!Fits<std::int64_t>::test(value) || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() > most)
      refuse(path, fmt::format("wanted a whole number from 0 to 2^40, got {}", shown(value)));
    return value.get<std::int64_t>();
  }
  std::int64_t count(const char* name) const { return at(name).count(); }

  std::int64_t whole(const char* name) const { return get<std::int64_t>(name, "a whole number"); }
  bool flag(const char* name) const { return get<bool>(name, "true or false"); }
  std::vector<std::string> texts(const char* name) const {
    return get<std::vector<std::string>>(name, "an array of strings");
  }
  std::map<std::string, std::int64_t> wholes(const char* name) const {
    return get<std::map<std::string, std::int64_t>>(name, "an object of whole numbers");
  }
  std::map<std::string, std::string> words(const char* name) const {
    return get<std::map<std::string, std::string>>(name, "an object of strings");
  }

  std::string one_of(const char* name, std::initializer_list<std::string_view> known) const {
    std::string word = text(name);
    if (std::find(known.begin(), known.end(), word) == known.end())
      refuse(at(name).path, fmt::format("'{}' is unknown", word));
    return word;
  }

  // A number, or the name of one that JSON lacks.
  double number() const {
    if (value.is_number()) return value.get<double>();
    constexpr double inf = std::numeric_limits<double>::infinity();
    if (value == "inf") return inf;
    if (value == "-inf") return -inf;
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    refuse(path, fmt::format("wanted a number, got {}", shown(value)));
  }
  double number(const char* name) const { return at(name).number(); }

  std::vector<Node> elements(const char* name) const {
    const Node array = at(name);
    if (!array.value.is_array()) refuse(array.path, fmt::format("wanted an array, got {}", shown(array.value)));
    std::vector<Node> nodes;
    for (const json& element : array.value) nodes.push_back({element, fmt::format("{}[{}]", array.path, nodes.size())});
    return nodes;
  }

  std::vector<std::pair<std::string, Node>> members() const {
    if (!value.is_object()) refuse(path, fmt::format("wanted an object, got {}", shown(value)));
    std::vector<std::pair<std::string, Node>> nodes;
    for (const auto& [key, member] : value.items())
      nodes.push_back({key, {member, fmt::format("{}.{}", path, visible(key))}});
    return nodes;
  }
};

std::map<std::string, double> ratios(const Node& node, const char* name) {
  std::map<std::string, double> by_tensor;
  for (const auto& [key, ratio] : node.at(name).members()) by_tensor[key] = ratio.number();
  return by_tensor;
}

std::map<std::string, std::int64_t> counts(const Node& node) {
  std::map<std::string, std::int64_t> by_name;
  for (const auto& [key, its] : node.members()) by_name[key] = its.count();
  return by_name;
}

Histogram histogram_from(const Node& node) {
  Histogram histogram;
  const json& bins = node.value;
  if (!bins.is_array() || bins.size() != Histogram::bins)
    refuse(node.path, fmt::format("wanted an array of {} counts, got {}", Histogram::bins, shown(bins)));
  for (std::size_t i = 0; i < Histogram::bins; ++i)
    histogram.count[i] = Node{bins[i], fmt::format("{}[{}]", node.path, i)}.count();
  return histogram;
}

Held held_from(const Node& node) {
  Held held{.series = node.text("series"),
            .symbol = node.text("symbol"),
            .extent = node.whole("extent"),
            .bytes = node.whole("bytes")};
  if (!node.at("allowed").value.is_null()) held.allowed = node.whole("allowed");
  return held;
}

Remark remark_from(const Node& node) {
  return {.kind = node.text("kind"),
          .operation = node.text("operation"),
          .place = node.text("place"),
          .detail = node.text("detail"),
          .count = node.count("count")};
}

Finding finding_from(const Node& node) {
  Finding finding{.kind = node.text("kind"),
                  .tensor = node.text("tensor"),
                  .text = node.text("text"),
                  .broken = node.flag("broken"),
                  .waiver = node.text("waiver"),
                  .index = node.get<Shape>("index", "an array of whole numbers")};
  finding.expected = node.number("expected");
  finding.radius = node.number("radius");
  finding.tolerance = node.number("tolerance");
  finding.got = node.number("got");
  return finding;
}

Case case_from(const Node& node) {
  try {
    return case_from_json(node.value);
  } catch (const std::invalid_argument& error) {
    refuse(node.path, error.what());
  }
}

Witness witness_from(const Node& node) {
  return {.found = case_from(node.at("found")),
          .smallest = case_from(node.at("smallest")),
          .shrink_steps = node.get<int>("shrink_steps", "a whole number"),
          .fixture = node.text("fixture"),
          .replay = node.text("replay")};
}

PropertyResult property_from(const Node& node) {
  PropertyResult p;
  p.name = node.text("name");
  p.proves = node.text("proves");
  p.verdict =
      node.one_of("verdict", {"PASSED", "DIFFERENT", "FAILED", "UNDECIDED", "WAIVED", "NOT ALGEBRAIC", "NOT RUN"});
  p.planned = node.count("planned");
  p.cases = node.count("cases");
  p.elements = node.count("elements");
  p.undecidable = node.count("undecidable");
  p.choices_in_doubt = node.count("choices_in_doubt");
  p.choices_flipped = node.count("choices_flipped");
  p.flip_moves = node.number("flip_moves");
  p.bit_equal = node.count("bit_equal");
  p.escape = node.number("escape");
  p.worst_ratio = ratios(node, "ratios");
  p.known_good_ratio = ratios(node, "known_good_ratios");
  for (const auto& [key, its] : node.at("histograms").members()) p.histogram[key] = histogram_from(its);
  for (const Node& its : node.elements("held")) p.held.push_back(held_from(its));
  if (node.has("finding")) p.finding = finding_from(node.at("finding"));
  if (node.has("witness")) p.witness = witness_from(node.at("witness"));
  // The views show a witness with what it shows.
  if (p.witness && !p.finding) refuse(node.path + ".finding", "the member is missing beside a witness");
  if (node.has("algebra")) p.algebra = node.text("algebra");
  if (node.has("not_algebraic")) p.not_algebraic = remark_from(node.at("not_algebraic"));
  if (node.has("claims")) p.claims = node.texts("claims");
  p.reason = node.text("reason");
  p.waived = counts(node.at("waived"));
  p.notes = node.texts("notes");
  p.seconds = node.number("seconds");
  return p;
}

Reference reference_from(const Node& node) {
  Reference reference{.name = node.text("name"),
                      .summary = node.text("summary"),
                      .settings = node.wholes("settings"),
                      .verdict = node.one_of("verdict", {"PASSED", "DIFFERENT", "FAILED", "UNDECIDED"}),
                      .trouble = node.text("trouble"),
                      .failures = node.texts("failures")};
  for (const Node& its : node.elements("properties")) reference.properties.push_back(property_from(its));
  reference.output = node.text("output");
  return reference;
}

Coverage coverage_from(const Node& node) {
  Coverage coverage;
  coverage.cases = counts(node.at("coverage"));
  for (const auto& [key, its] : node.at("largest").members()) {
    if (key != name(DType::float32) && key != name(DType::float64)) refuse(its.path, "no dtype has this name");
    for (const auto& [symbol, extent] : its.members()) {
      if (!Fits<std::int64_t>::test(extent.value))
        refuse(extent.path, fmt::format("wanted a whole number, got {}", shown(extent.value)));
      coverage.largest[dtype_from(key)][symbol] = extent.value.get<std::int64_t>();
    }
  }
  return coverage;
}

void read_mutants(const Node& node, Result& result) {
  result.power_measured = node.flag("measured");
  result.backward_alone = node.texts("backward_alone_forms");
  for (const Node& its : node.elements("table"))
    result.kills.push_back({.form = its.text("name"),
                            .summary = its.text("summary"),
                            .killed = its.flag("killed"),
                            .property = its.text("property"),
                            .kind = its.text("kind"),
                            .tensor = its.text("tensor"),
                            .where = its.text("case")});
}

Lines lines_from(const Node& node) {
  Lines lines;
  for (const auto& [property, its] : node.at("lines").members())
    for (const auto& [key, line] : its.members())
      lines[property][key] = {.candidate = line.number("candidate"),
                              .known_good = line.number("known_good"),
                              .cases = line.count("cases"),
                              .where = line.text("where")};
  return lines;
}

Verdict verdict_from(const Node& node) {
  const std::string word = node.text("verdict");
  for (int v = 0; v <= static_cast<int>(Verdict::failed); ++v)
    if (name(static_cast<Verdict>(v)) == word) return static_cast<Verdict>(v);
  refuse(node.at("verdict").path, fmt::format("'{}' is unknown", word));
}

// A member that is written from others, such as how many known-wrong forms were killed, would otherwise be lost without
// a word where somebody has changed it.
void require_same(const json& given, const json& written, const std::string& path) {
  if (written.is_object() && given.is_object()) {
    for (const auto& [key, value] : written.items()) {
      const std::string member = path.empty() ? key : fmt::format("{}.{}", path, visible(key));
      if (!given.contains(key)) refuse(member, "the member is missing");
      require_same(given.at(key), value, member);
    }
  } else if (written.is_array() && given.is_array() && written.size() == given.size()) {
    for (std::size_t i = 0; i < written.size(); ++i) require_same(given[i], written[i], fmt::format("{}[{}]", path, i));
  } else if (given != written) {
    refuse(path, fmt::format("the other members make it {}, got {}", shown(written), shown(given)));
  }
}

}  // namespace

Result result_from(const json& given) {
  const Node node{given, ""};
  if (!given.is_object()) throw std::runtime_error(fmt::format("wanted a result, an object; got {}", shown(given)));
  if (const std::string format = node.text("format"); format != result_format)
    refuse("format", fmt::format("wanted '{}', got '{}'", result_format, format));

  Result result;
  result.verdict = verdict_from(node);
  result.reasons = node.texts("reasons");
  result.kernel = node.text("kernel");
  result.candidate = node.text("candidate");
  result.summary = node.text("summary");
  if (node.has("recomputes")) result.recomputes = node.text("recomputes");
  result.settings = node.wholes("settings");
  result.contract_version = node.get<int>("contract_version", "a whole number");
  result.plan_hash = node.text("plan_hash");
  result.plan_of = node.text("plan_of");
  result.plan_properties = node.texts("plan_properties");
  result.shards = node.texts("shards");
  result.seed = node.get<std::uint64_t>("seed", "a whole number of at least 0");
  result.preset = node.text("preset");
  result.dtypes = node.texts("dtypes");
  result.only = node.texts("only");
  result.waived = node.texts("waived");
  result.partial = node.flag("partial");
  result.forward_only = node.flag("forward_only");
  for (const Node& its : node.elements("properties")) result.properties.push_back(property_from(its));
  if (node.has("reference")) {
    result.reference = reference_from(node.at("reference"));
    // The two are laid side by side, row by row.
    if (!std::equal(result.properties.begin(), result.properties.end(), result.reference->properties.begin(),
                    result.reference->properties.end(),
                    [](const PropertyResult& a, const PropertyResult& b) { return a.name == b.name; }))
      refuse("reference.properties", "wanted the same properties as the candidate's, in their order");
  }
  read_mutants(node.at("mutants"), result);
  result.known_good = node.texts("known_good");
  result.shared_edges = node.words("shared_edges");
  result.trouble = node.text("trouble");
  result.unfit = node.text("unfit");
  result.complaints = node.texts("complaints");
  result.cut = node.text("cut");
  result.lines = lines_from(node);
  for (const Node& its : node.elements("audit")) result.audit.push_back(remark_from(its));
  result.coverage = coverage_from(node);
  result.machine = node.words("machine");
  result.candidate_output = node.text("candidate_output");
  result.started = node.text("started");
  result.seconds = node.number("seconds");
  require_same(given, to_json(result), "");
  return result;
}

Result result_from_text(std::string_view text, const std::string& name) {
  const json parsed = attest::strict_json(text, name);
  try {
    return result_from(parsed);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{} is no result of this version: {}", name, error.what()));
  }
}

}  // namespace fractus
