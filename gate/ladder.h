// The escalation of a run, one step at a time: each step in its order, and each with an envelope of its own that the
// gate admits.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gate/admission.h"
#include "gate/refusal.h"

namespace fractus::gate {

inline constexpr const char* ladder_format = "fractus-verify ladder 1";

struct Rung {
  const char* step;
  const char* kernel;  // that one of its envelopes must be about; null where the step says nothing of a kernel
};
inline constexpr Rung ladder[] = {{"code-swap", nullptr},
                                  {"ce-chunk-2048", "cross_entropy"},
                                  {"chunked-attention", "linear_attention"},
                                  {"block-checkpointing", "block_core"},
                                  {"compile-and-batch", nullptr}};

struct Proof {
  std::filesystem::path envelope;
  std::vector<std::filesystem::path> artifacts;
};

struct Step {
  std::string name;
  bool done = false;
  std::vector<Proof> proofs;
};

// Of the JSON text; paths are taken from `folder` where they are relative. Throws std::runtime_error with `name`, the
// place and the fault.
std::vector<Step> steps_from(std::string_view text, const std::string& name, const std::filesystem::path& folder);

// How an envelope and the bytes that it is about are admitted: admit() of gate/admission.h, under one policy.
using Admit = std::function<Admission(const std::filesystem::path& envelope,
                                      const std::vector<std::filesystem::path>& artifacts)>;

// May the last step of the file be taken, and were those before it taken in order? Every envelope is looked at, those
// of steps that are done too: what runs beneath the new step must still be admitted.
Answer check_ladder(const std::filesystem::path& file, const Admit& admit);

}  // namespace fractus::gate
