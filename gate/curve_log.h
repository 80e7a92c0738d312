// The trainer's log: lines that hold tf=, ema_tf= and lb=, with whatever stands around them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace fractus::gate {

struct Sample {
  double tf = 0, ema_tf = 0, lb = 0;
  double tf_unit = 0, ema_unit = 0;  // of the last digit that was printed
  std::optional<std::int64_t> step;
  std::size_t line = 0;  // in its file, from 1
};

// A line is the trainer's if it has ema_tf=; it must have tf= and lb= then, each once. step= is a line's or it is not.
// NaN and inf are numbers here. A last line without its end is left out, since it may be cut inside a number. Throws
// std::runtime_error with `name`, line and fault.
std::vector<Sample> samples_from(std::istream& text, const std::string& name);
std::vector<Sample> samples_of(const std::filesystem::path& file);

}  // namespace fractus::gate
