#include "properties/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "properties/fields.h"

namespace fractus {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string text_of(const Dims& dims) {
  std::string text;
  for (const auto& [symbol, extent] : dims) text += fmt::format("{}{} {}", text.empty() ? "" : " ", symbol, extent);
  return text;
}

std::string label(const Case& c) {
  std::string text = fmt::format("{} {}", c.property, name(c.dtype));
  if (!c.variant.empty()) text += " " + c.variant;
  text += fmt::format(" {} {}", text_of(c.dims), c.fill);
  if (!c.absent.empty()) text += fmt::format(" without {}", fmt::join(c.absent, ","));
  if (!c.cotangents.empty()) text += fmt::format(" d{}", fmt::join(c.cotangents, "+d"));
  if (!c.frozen.empty()) text += fmt::format(" frozen {}", fmt::join(c.frozen, ","));
  for (const auto& [tensor, layout] : c.layouts) text += fmt::format(" {}:{}", tensor, name(layout));
  if (!c.pieces.empty()) text += fmt::format(" pieces {}", fmt::join(c.pieces, "+"));
  for (const auto& [parameter, value] : c.settings) text += fmt::format(" {}={}", parameter, value);
  return text + fmt::format(" seed {}", c.seed);
}

void to_json(nlohmann::json& json, const Case& c) {
  json = {{"kernel", c.kernel},   {"property", c.property},
          {"variant", c.variant}, {"dtype", name(c.dtype)},
          {"dims", c.dims},       {"fill", c.fill},
          {"seed", c.seed},       {"absent", c.absent},
          {"frozen", c.frozen},   {"cotangents", c.cotangents},
          {"pieces", c.pieces},   {"settings", c.settings}};
  json["layouts"] = nlohmann::json::object();
  for (const auto& [tensor, layout] : c.layouts) json["layouts"][tensor] = name(layout);
}

Case case_from_json(const nlohmann::json& json) {
  Case c;
  c.kernel = field<std::string>(json, "kernel");
  c.property = field<std::string>(json, "property");
  c.variant = field<std::string>(json, "variant");
  c.dtype = dtype_from(field<std::string>(json, "dtype"));
  c.dims = field<Dims>(json, "dims");
  c.fill = field<std::string>(json, "fill");
  c.seed = field<std::uint64_t>(json, "seed");
  c.absent = field<std::vector<std::string>>(json, "absent");
  c.frozen = field<std::vector<std::string>>(json, "frozen");
  c.cotangents = field<std::vector<std::string>>(json, "cotangents");
  c.pieces = field<std::vector<std::int64_t>>(json, "pieces");
  for (const auto& [tensor, layout] : field<std::map<std::string, std::string>>(json, "layouts"))
    c.layouts[tensor] = layout_from(layout);
  c.settings = field<std::map<std::string, std::int64_t>>(json, "settings");
  return c;
}

}  // namespace fractus
