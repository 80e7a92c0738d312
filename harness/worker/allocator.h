// The child's CPU allocator: every new block is poisoned and lies between guard bands that are checked when it is
// freed, and the bytes held are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fractus::worker {

void install_allocator();

// Off while time is measured: filling a block costs as much as many a kernel.
void set_poisoning(bool on);

std::int64_t live_bytes();
std::int64_t peak_bytes();  // the most since the last restart_peak
void restart_peak();

// What the guard bands have seen since the last call, one line a block.
std::vector<std::string> take_violations();

}  // namespace fractus::worker
