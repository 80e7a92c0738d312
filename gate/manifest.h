// Does a run resume at the exact token? RESUME_MANIFEST.json against the batch and the sequence that it is to resume
// with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "gate/refusal.h"

namespace fractus::gate {

struct Resume {
  std::uint64_t start_token = 0, tokens_processed = 0;
  std::string checkpoint, shard;              // as written; docs/open-heart.md says what a relative path means
  std::optional<std::uint64_t> shard_tokens;  // where the manifest states them; the file has the say
};

struct Manifest {
  std::uint64_t step_tokens = 0;
  std::map<std::string, Resume> gpus;  // by id
};

// Of the JSON text. Counts are whole numbers, written as 4096 or 4096.0. Throws std::runtime_error with `name`, the
// place and the fault.
Manifest manifest_from(std::string_view text, const std::string& name);

struct ManifestQuestion {
  std::filesystem::path file;
  std::uint64_t batch = 0,
                sequence = 0;  // sequences of a step, and tokens of a sequence: a slice has their product + 1
};

Answer check_manifest(const ManifestQuestion& question);

}  // namespace fractus::gate
