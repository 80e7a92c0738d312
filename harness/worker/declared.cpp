// What a form declares, where that is code of its own.
#include <fmt/format.h>

#include <stdexcept>

#include "contracts/form.h"
#include "harness/worker/serve.h"

namespace fractus::worker {

protocol::Json extra_elements(const protocol::Json& request) {
  const Form* form = find_form(request.at("kernel").get<std::string>(), request.at("form").get<std::string>());
  if (form == nullptr)
    throw std::invalid_argument(
        fmt::format("no form of {} is named {}", request.at("kernel").dump(), request.at("form").dump()));
  if (!form->declares.extra_elements) return {{"count", nullptr}};
  Settings settings = form->settings;
  for (const auto& [key, value] : request.at("settings").get<Settings>()) settings[key] = value;
  try {
    return {{"count", form->declares.extra_elements(request.at("dims").get<Dims>(), settings)}};
  } catch (...) {
    return {{"raised", exception_text()}};
  }
}

}  // namespace fractus::worker
