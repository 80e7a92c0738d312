// Did the run go on as it was? The trainer's curve before and after a swap.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gate/curve_log.h"
#include "gate/refusal.h"

namespace fractus::gate {

// How far the lines after a swap lie from where the lines before it lead, beside the same distances at places of the
// run before the swap.
//
// A block has `block` lines. Behind a place stand three distances: a straight line through the means of the 8 blocks
// before it is led on into the first block, and that block's mean and its furthest line are held against it; and the
// mean of the last of `reach` lines, a block too, against the mean of the 8. A wrong forward shows in the first two at
// once, a wrong gradient in the third alone. What was measured at the swap is ranked among what was measured at the
// places before it, the run's own noise: p = (1 + places at least as far) / (1 + places). Where the distances at all
// places are exchangeable, which holds where the noise around a locally straight curve is the same throughout and
// forgotten within a block, P(p <= level) <= level for every number of places and every law of the noise (Vovk,
// Gammerman, Shafer 2005, "Algorithmic Learning in a Random World"; for series Chernozhukov, Wuethrich, Zhu 2021, "An
// Exact and Robust Conformal Inference Method for Counterfactual and Synthetic Controls"). Neighbouring places share
// blocks of their lines, so they are not quite that: what this and a longer memory cost is measured in
// tests/gate/curve_test.cpp; docs/open-heart.md has the figures. A curve that falls ever more slowly has farther third
// distances before the swap than after it: that makes the third question milder, and no false alarm.
struct Continuity {
  std::size_t block = 0, places = 0, reach = 0;  // places: as many as the level needs, the nearest ones
  double mean = 0, expected = 0;                 // of the first block after the swap
  double late_mean = 0, level = 0;               // of the last one, and of the 8 before the swap
  double mean_p = 1, single_p = 1, late_p = 1;

  // A p is a multiple of 1 / (places + 1), and the level is meant to be one.
  bool refused_at(double level) const { return std::min({mean_p, single_p, late_p}) <= level * (1 + 1e-9); }
};

// Blocks of a place's past, questions of a series, the share of false alarms of a whole check, and the lines that a
// block has at least: with fewer, a change of the noise's own size would not show.
inline constexpr std::size_t past_blocks = 8, questions = 3, least_block = 16;
inline constexpr double false_alarms = 0.02;

// Lines wanted before a swap where so many series share the false alarms.
std::size_t lines_wanted(std::size_t series);

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
