// Open-heart checks as the gate's command asks for them: checkpoint, manifest, ladder, curve.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace fractus::cli {

struct HeartOptions {
  std::string checkpoint, checkpoint_new;
  bool nan = false;
  std::vector<std::string> config_may_change;
  std::string manifest;
  std::uint64_t batch = 0, sequence = 0;
  std::string ladder;
  std::string curve, curve_new;
  std::int64_t swap_at = -1;
};

void add_heart(CLI::App& app, HeartOptions& options);

// Options that stand alone and mean nothing so. Throws UsageError.
void require_pairs(const HeartOptions& options, bool policy);

struct GatePart;

// All but the ladder, which is judged by the gate's policy.
std::vector<GatePart> heart_parts(const HeartOptions& options);

struct CheckpointOptions {
  std::string file, json;
};

void add_checkpoint(CLI::App& app, CheckpointOptions& options);

// A checkpoint's form, in words or as a schema. 0, or 1 where the file is no checkpoint.
int checkpoint(const CheckpointOptions& options);

}  // namespace fractus::cli
