// A shrunk failure as a file: the case, the values themselves, and what was found. It replays without the generator.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "harness/attached.h"
#include "properties/property.h"

namespace fractus {

struct Fixture {
  std::string candidate;
  std::map<std::string, std::int64_t> settings;
  Case c;
  std::optional<Problem> problem;  // absent for a large case: its seed makes the values again
  Finding finding;                 // as it was when the file was written
  std::string recomputes;          // FormInfo::recomputes of the candidate
  bool after_another = false;      // shows only behind another call of the same shapes, as a stale cache does
};

// Runs the fixture with the candidate, in a process that has served nothing before, or just one other call of the same
// shapes where the fixture says so. Throws std::invalid_argument where the case does not fit its property.
std::optional<Finding> replayed(const Driver& driver, const Fixture& fixture, Attached& fresh);

// Writes under a temporary name first. Returns the file's path; throws std::runtime_error with path and reason.
std::filesystem::path write_fixture(const std::filesystem::path& folder, const Fixture& fixture);

// Throws std::runtime_error that names the file, the field, what was wanted and what was got.
Fixture read_fixture(const std::filesystem::path& file);

}  // namespace fractus
