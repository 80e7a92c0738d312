// Members of a signed predicate. One that is missing or of another type is refused like any other fact, so that it does
// not hide what else is to be refused.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gate/refusal.h"

namespace fractus::gate {

// The text as it stands in an error: cut where it is long, since a signer may write what it likes.
std::string shown(const std::string& text);
std::string shown(const std::vector<std::string>& names);  // "a, b and 7 more"; "none"

class Members {
 public:
  // Refusals go to `answer` under the name of `check`. `object` outlives this.
  Members(const nlohmann::json& object, std::string check, Answer& answer, std::string prefix = "")
      : object_(object), check_(std::move(check)), answer_(answer), prefix_(std::move(prefix)) {}

  std::optional<std::string> text(const char* name) const;
  std::optional<std::int64_t> count(const char* name) const;  // 0 or more
  std::optional<bool> truth(const char* name) const;
  std::optional<std::vector<std::string>> texts(const char* name) const;
  const nlohmann::json* object(const char* name) const;  // nullptr where there is none
  const nlohmann::json* list(const char* name) const;

 private:
  const nlohmann::json* find(const char* name, bool (*is)(const nlohmann::json&), const char* wanted) const;

  const nlohmann::json& object_;
  std::string check_;
  Answer& answer_;
  std::string prefix_;
};

}  // namespace fractus::gate
