// Measurements: ratios within one run, never a test.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"

namespace fractus::cli {

// `bench oracle`, `bench attention`, `bench cross_entropy` and `bench power`; see docs/measurements.md for what they
// print.
int bench(const Options& options);

int bench_power(const Options& options);

// As text and, where asked for, as JSON.
void show(const Options& options, const std::string& text, const nlohmann::json& figures);

}  // namespace fractus::cli
