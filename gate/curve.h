// Did the run go on as it was? The trainer's curve before and after a swap.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gate/curve_log.h"
#include "gate/refusal.h"

namespace fractus::gate {

// How far the first lines after a swap lie from where the lines before it lead, beside the same distance at every place
// of the run before the swap.
//
// The run is cut into blocks of `block` lines, counted back from the swap. A straight line through the means of 8
// blocks is led on into the next block, and two distances are taken there: that of the block's mean, and the largest of
// a single line. What was measured behind the swap is ranked among what was measured at the places before it, the run's
// own noise: p = (1 + places at least as far) / (1 + places). Where the distances at all places are exchangeable, which
// holds where the noise around a locally straight curve is the same throughout and forgotten within a block, P(p <=
// level) <= level for every number of places and every law of the noise (Vovk, Gammerman, Shafer 2005, "Algorithmic
// Learning in a Random World"; for series Chernozhukov, Wuethrich, Zhu 2021, "An Exact and Robust Conformal Inference
// Method for Counterfactual and Synthetic Controls"). Neighbouring places share blocks of their lines, so they are not
// quite that: what this and a longer memory cost is measured in tests/gate/curve_test.cpp; docs/open-heart.md has it.
struct Continuity {
  std::size_t block = 0, places = 0;
  double mean = 0, expected = 0;  // of the first block after the swap
  double mean_p = 1, single_p = 1;
};

// Blocks of a line's own past, the share of false alarms of a whole check, and the lines that a block has at least:
// with fewer, a change of the noise's own size would not show.
inline constexpr std::size_t blocks_of_line = 8, least_block = 16, most_places = 1000;
inline constexpr double false_alarms = 0.02;

// Lines wanted before a swap where `tests` questions share the false alarms.
std::size_t lines_wanted(std::size_t tests);

// Nothing where there are too few lines. `level` is of one question.
std::optional<Continuity> continuity(std::span<const double> before, std::span<const double> after, double level);

struct CurveQuestion {
  std::filesystem::path log;
  std::optional<std::filesystem::path> log_after;  // where the new code writes one of its own
  std::optional<std::int64_t> swap;                // its first step, or without step= its first line; in one log alone
};

Answer check_curve(const CurveQuestion& question);

// The same for what was read.
Answer check_curve(const std::vector<Sample>& before, const std::vector<Sample>& after);

}  // namespace fractus::gate
