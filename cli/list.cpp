#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/streams.h"
#include "cli/usage.h"
#include "properties/property.h"
#include "reports/words.h"

namespace fractus::cli {

int list(const Options& options) {
  const Workshop workshop;
  nlohmann::json json{{"kernels", nlohmann::json::array()}, {"properties", nlohmann::json::array()}};
  std::string text;
  for (const Driver* driver : drivers()) {
    const std::string& kernel = driver->contract->kernel;
    nlohmann::json forms = nlohmann::json::array();
    text += fmt::format("{}, contract version {}\n", kernel, driver->contract->version);
    for (const char* role : {"reference", "candidate", "wrong"})
      for (const FormInfo& form : workshop.forms()) {
        if (form.kernel != kernel || form.role != role) continue;
        std::string settings;
        for (const auto& [parameter, value] : form.settings) settings += fmt::format(":{}={}", parameter, value);
        text += fmt::format("  {:<9} {:<38} {}\n", role, form.name + settings, visible(form.summary));
        forms.push_back(
            {{"name", form.name}, {"role", form.role}, {"summary", form.summary}, {"settings", form.settings}});
      }
    json["kernels"].push_back({{"name", kernel},
                               {"contract_version", driver->contract->version},
                               {"waivers", driver->contract->waivers},
                               {"forms", forms}});
  }
  std::vector<std::string> only_identity;
  for (const Driver* driver : identity_drivers()) only_identity.push_back(driver->contract->kernel);
  text += fmt::format("\nkernels of the command identity alone: {}\n", fmt::join(only_identity, ", "));
  json["identity_kernels"] = only_identity;
  text += "\nproperties\n";
  for (const Property& property : properties()) {
    text += fmt::format("  {:<10} {}\n", property.name, property.proves);
    json["properties"].push_back({{"name", property.name}, {"proves", property.proves}});
  }
  const char* power =
      "known-wrong forms of the kernel go through the very same plan; a survivor makes the verdict MISTRUSTED";
  text += fmt::format("  {:<10} {}\n", "power", power);
  json["properties"].push_back({{"name", "power"}, {"proves", power}});
  if (options.json != "-") print_whole(text);
  if (!options.json.empty()) write_json(options.json, json.dump(1) + "\n");
  return 0;
}

}  // namespace fractus::cli
