#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/facts.h"
#include "reports/result.h"

namespace fractus {
namespace {

using nlohmann::json;

// JSON has no infinity and no NaN; a number that is one of them is written as its name.
json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

json numbers(const std::map<std::string, double>& ratios) {
  json object = json::object();
  for (const auto& [key, ratio] : ratios) object[key] = number(ratio);
  return object;
}

json histograms(const std::map<std::string, Histogram>& by_tensor) {
  json object = json::object();
  for (const auto& [key, histogram] : by_tensor) object[key] = histogram.count;
  return object;
}

json to_json(const Held& held) {
  return {{"series", held.series},
          {"symbol", held.symbol},
          {"extent", held.extent},
          {"bytes", held.bytes},
          {"allowed", held.allowed ? json(*held.allowed) : json()}};
}

json to_json(const Remark& remark) {
  return {{"kind", remark.kind},
          {"operation", remark.operation},
          {"place", remark.place},
          {"detail", remark.detail},
          {"count", remark.count}};
}

json lines_of(const Lines& lines) {
  json object = json::object();
  for (const auto& [property, its] : lines)
    for (const auto& [key, line] : its)
      object[property][key] = {{"candidate", number(line.candidate)},
                               {"known_good", number(line.known_good)},
                               {"cases", line.cases},
                               {"where", line.where}};
  return object;
}

json to_json(const Witness& witness) {
  return {{"found", witness.found},
          {"smallest", witness.smallest},
          {"shrink_steps", witness.shrink_steps},
          {"fixture", witness.fixture},
          {"replay", witness.replay}};
}

json to_json(const PropertyResult& p) {
  json j{{"name", p.name},
         {"proves", p.proves},
         {"verdict", p.verdict},
         {"planned", p.planned},
         {"cases", p.cases},
         {"worst_ratio", number(p.worst())},
         {"ratios", numbers(p.worst_ratio)},
         {"known_good_ratios", numbers(p.known_good_ratio)},
         {"histograms", histograms(p.histogram)},
         {"elements", p.elements},
         {"undecidable", p.undecidable},
         {"choices_in_doubt", p.choices_in_doubt},
         {"choices_flipped", p.choices_flipped},
         {"flip_moves", number(p.flip_moves)},
         {"bit_equal", p.bit_equal},
         {"escape", number(p.escape)},
         {"waived", p.waived},
         {"notes", p.notes},
         {"reason", p.reason},
         {"seconds", number(p.seconds)}};
  if (!p.algebra.empty()) j["algebra"] = p.algebra;
  if (p.not_algebraic) j["not_algebraic"] = to_json(*p.not_algebraic);
  if (const auto claims = claims_of(p); !claims.empty()) j["claims"] = claims;
  j["held"] = json::array();
  for (const Held& held : p.held) j["held"].push_back(to_json(held));
  if (p.finding) j["finding"] = to_json(*p.finding);
  if (p.witness) j["witness"] = to_json(*p.witness);
  return j;
}

json to_json(const Result& result, const Reference& reference) {
  json properties = json::array();
  for (std::size_t i = 0; i < reference.properties.size(); ++i) {
    properties.push_back(to_json(reference.properties[i]));
    properties.back()["apart"] = numbers(apart(result.properties[i], reference.properties[i]));
  }
  const auto most = apart(result);
  return {{"name", reference.name},
          {"summary", reference.summary},
          {"settings", reference.settings},
          {"verdict", reference.verdict},
          {"trouble", reference.trouble},
          {"failures", reference.failures},
          {"apart", most ? number(*most) : json()},
          {"properties", properties},
          {"output", reference.output}};
}

json mutants_of(const Result& result) {
  json table = json::array(), survivors = json::array();
  std::size_t killed = 0;
  for (const Kill& kill : result.kills) {
    killed += kill.killed ? 1 : 0;
    if (!kill.killed && result.power_measured) survivors.push_back(kill.form);
    table.push_back({{"name", kill.form},
                     {"summary", kill.summary},
                     {"killed", kill.killed},
                     {"property", kill.property},
                     {"kind", kill.kind},
                     {"tensor", kill.tensor},
                     {"case", kill.where}});
  }
  return {{"measured", result.power_measured},
          {"backward_alone", result.backward_alone.size()},
          {"backward_alone_forms", result.backward_alone},
          {"killed", killed},
          {"total", result.kills.size()},
          {"survivors", survivors},
          {"table", table}};
}

// Properties that have no case where no gradient is wanted.
std::vector<std::string> not_applied(const Result& result) {
  return result.forward_only ? std::vector<std::string>{"gradients"} : std::vector<std::string>{};
}

}  // namespace

json to_json(const Finding& finding) {
  return {{"kind", finding.kind},
          {"tensor", finding.tensor},
          {"text", finding.text},
          {"broken", finding.broken},
          {"waiver", finding.waiver},
          {"index", finding.index},
          {"expected", number(finding.expected)},
          {"radius", number(finding.radius)},
          {"tolerance", number(finding.tolerance)},
          {"got", number(finding.got)}};
}

json to_json(const Result& result) {
  json largest = json::object();
  for (const auto& [dtype, dims] : result.coverage.largest) largest[std::string(name(dtype))] = dims;
  json j{{"format", result_format},
         {"verdict", name(result.verdict)},
         {"reasons", result.reasons},
         {"kernel", result.kernel},
         {"candidate", result.candidate},
         {"summary", result.summary},
         {"settings", result.settings},
         {"contract_version", result.contract_version},
         {"plan_hash", result.plan_hash},
         {"plan_of", result.plan_of},
         {"plan_properties", result.plan_properties},
         {"left_out", left_out(result)},
         {"shards", result.shards},
         {"seed", result.seed},
         {"preset", result.preset},
         {"dtypes", result.dtypes},
         {"partial", result.partial},
         {"forward_only", result.forward_only},
         {"not_applied", not_applied(result)},
         {"only", result.only},
         {"waived", result.waived},
         {"waiver_uses", waiver_uses(result)},
         {"known_good", result.known_good},
         {"shared_edges", result.shared_edges},
         {"trouble", result.trouble},
         {"unfit", result.unfit},
         {"complaints", result.complaints},
         {"cut", result.cut},
         {"lines", lines_of(result.lines)},
         {"coverage", result.coverage.cases},
         {"largest", largest},
         {"mutants", mutants_of(result)},
         {"machine", result.machine},
         {"candidate_output", result.candidate_output},
         {"started", result.started},
         {"seconds", number(result.seconds)}};
  if (!result.recomputes.empty()) j["recomputes"] = result.recomputes;
  j["audit"] = json::array();
  for (const Remark& remark : result.audit) j["audit"].push_back(to_json(remark));
  j["properties"] = json::array();
  for (const PropertyResult& property : result.properties) j["properties"].push_back(to_json(property));
  if (result.reference) j["reference"] = to_json(result, *result.reference);
  return j;
}

}  // namespace fractus
