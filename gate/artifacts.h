// Are the bytes that will be loaded those that the verdict is about?
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "attest/digest.h"
#include "attest/statement.h"
#include "gate/policy.h"
#include "gate/refusal.h"

namespace fractus::gate {

struct Artifact {
  std::filesystem::path path;
  attest::Digest digest;  // sha256 of a file, tree-sha256 of a folder
};

// Reads each once. What cannot be read is refused in `answer` and not among those that come back.
std::vector<Artifact> read_artifacts(const std::vector<std::filesystem::path>& paths, Answer& answer);

// Every subject of the candidate is one of the artifacts, and every artifact is such a subject, each at the same place
// among the others as in the run: two modules that have changed places, or a stranger beside them, are other code.
// - A folder is a subject by its tree digest alone. File by file it could hold more than was verified.
// - A file that lies, by its subject's name, in a folder that is a subject too is part of it and needs no artifact.
// - A Python source beside which its compiled form lies is refused, since Python may run that one.
// - Subjects of the reference alone are what the candidate was held against; an artifact that is one is refused.
Answer artifacts_admitted(const Policy& policy, const attest::Statement& statement,
                          const std::vector<Artifact>& artifacts);

}  // namespace fractus::gate
