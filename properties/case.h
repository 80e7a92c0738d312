// A case: everything that one check needs, as data. The same case makes the same call on every run.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "contracts/call.h"
#include "contracts/contract.h"

namespace fractus {

struct Case {
  std::string kernel;
  std::string property;
  std::string variant;  // what the property does with the call; its own word, may be empty
  DType dtype = DType::float32;
  Dims dims;
  std::string fill;                     // the distribution of the values, one of the driver's
  std::uint64_t seed = 0;               // of the values
  std::vector<std::string> absent;      // optional inputs that are not passed
  std::vector<std::string> cotangents;  // outputs that receive one; none: no backward
  std::vector<std::string> frozen;      // differentiable inputs that do not require a gradient
  Layouts layouts;
  std::vector<std::int64_t> pieces;              // lengths along T, for a split sequence
  std::map<std::string, std::int64_t> settings;  // of the candidate, where the case fixes any

  bool operator==(const Case&) const = default;
};

bool contains(const std::vector<std::string>& list, const std::string& word);

// "G 80 T 128 D 64"
std::string text_of(const Dims& dims);

// "rounding float32 G 80 T 128 D 64 feature seed 7": for a person; the JSON form is for replaying.
std::string label(const Case& c);

void to_json(nlohmann::json& json, const Case& c);
// Throws std::invalid_argument that names the field, what was wanted and what was got.
Case case_from_json(const nlohmann::json& json);

}  // namespace fractus
