#include "bench/oracle.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <thread>

#include "bench/live.h"
#include "bench/statistics.h"
#include "oracle/linear_attention_expected.h"

namespace fractus::bench {
namespace {

struct OracleRun {
  double seconds = 0;
  double extra_mb = 0;
};

OracleRun run_here(int threads) {
  const Call call = live_call("einsum", 2, true, threads);
  const oracle::linear_attention::Question question{
      .dtype = DType::float32, .inputs = call.inputs, .cotangents = call.cotangents, .threads = threads};
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts from here (proc(5))
  const std::int64_t before = status_bytes("VmRSS:");
  const auto start = std::chrono::steady_clock::now();
  const oracle::Expected expected = oracle::linear_attention::expected(question);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {seconds, static_cast<double>(status_bytes("VmHWM:") - before) / 1e6};
}

// In a child, so that its peak is its own.
OracleRun run_in_child(int threads) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("cannot make a pipe for the oracle's measurement");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const OracleRun run = run_here(threads);
      ::_exit(::write(ends[1], &run, sizeof run) == sizeof run ? 0 : 1);
    } catch (...) {
      ::_exit(1);  // not into main a second time; the parent sees a pipe without figures
    }
  }
  ::close(ends[1]);
  OracleRun run;
  const bool whole = child > 0 && ::read(ends[0], &run, sizeof run) == sizeof run;
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  if (!whole) throw std::runtime_error("the oracle's measurement ended without figures");
  return run;
}

}  // namespace

OracleFigures measure_oracle(const Workshop& workshop, int rounds) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::vector<double> oracle_seconds, oracle_extra, einsum_seconds, einsum_extra;
  for (int round = 0; round < rounds; ++round) {  // in turn, so that a drift of the machine meets both
    Process process = workshop.spawn({.extra_bytes = std::int64_t{16} << 30});
    const Timing timing = measure(process, live_call("einsum", 2, true, threads), 1, 1, std::chrono::minutes(2));
    if (timing.status != Status::ok) throw std::runtime_error("einsum was not measured: " + timing.message);
    einsum_seconds.push_back(timing.seconds.front());
    einsum_extra.push_back(static_cast<double>(timing.resident_after - timing.resident_before) / 1e6);
    const OracleRun run = run_in_child(threads);
    oracle_seconds.push_back(run.seconds);
    oracle_extra.push_back(run.extra_mb);
  }
  return {median(oracle_seconds), median(einsum_seconds), median(oracle_extra), median(einsum_extra), threads};
}

}  // namespace fractus::bench
