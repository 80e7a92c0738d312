// The commands. Each returns an exit status, throws UsageError for what the user can mend, and anything else for a
// failure of our own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fractus::cli {

inline constexpr int bad_usage = 64;
inline constexpr int our_failure = 70;

// Of a command whose result may be signed.
struct SignOptions {
  std::string key, expires, envelope;
  std::vector<std::string> subjects;
};

struct Options {
  std::string kernel, candidate, reference, recompute_of, preset = "live", dtype, only, skip, waive, report, json,
                                                          budget, file, folder, what;
  std::uint64_t seed = 1;
  std::int64_t cases = 0;
  bool forward_only = false;
  SignOptions sign;
};

int verify(const Options& options);
int list(const Options& options);
int replay(const Options& options);
int fuzz(const Options& options);
int golden(const Options& options);
int battery(const Options& options);
int identity(const Options& options);

// The checkout: FRACTUS_ROOT from the launcher, else the folder above the build's.
std::filesystem::path root();

// To a file, or to standard output for "-". Throws std::runtime_error; nothing half-written.
void write_json(const std::string& file, const std::string& text);

// What cannot be written costs a line on standard error, never the verdict and its status.
void try_to_write(const std::string& what, const std::function<void()>& write);

}  // namespace fractus::cli
