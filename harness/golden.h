// Recorded tensors of the engine's own code against the oracle, and every form against both.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/process.h"

namespace fractus {

struct GoldenLine {
  std::string file;
  std::string what;  // "recorded float32", "recorded float64", or a form's name and dtype
  bool passed = false;
  double worst_ratio = 0;  // error over tolerance against the oracle
  std::string text;        // the finding, where there is one
};

struct GoldenResult {
  std::vector<GoldenLine> lines;
  std::vector<std::string> skipped;  // files of kernels that this build has not
  bool passed() const;
};

// Every case of folder/index.json. Throws std::runtime_error that names the file, and the field or tensor, for an index
// or archive that does not hold what it says.
GoldenResult golden(const Workshop& workshop, const std::filesystem::path& folder);

}  // namespace fractus
