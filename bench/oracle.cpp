#include "bench/oracle.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>

#include "bench/cross_entropy.h"
#include "bench/live.h"
#include "bench/statistics.h"

namespace fractus::bench {
namespace {

constexpr std::int64_t loss_rows = 256;  // of the training run's batch, as many as are judged in one call

struct OracleRun {
  double seconds = 0;
  double extra_mb = 0;
};

// As a verdict asks it.
OracleRun run_here(const Call& call) {
  const Driver& driver = *find_driver(call.kernel);
  const Problem problem{.inputs = call.inputs, .scalars = call.scalars, .cotangents = call.cotangents};
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts from here (proc(5))
  const std::int64_t before = status_bytes("VmRSS:");
  const auto start = std::chrono::steady_clock::now();
  const oracle::Expected expected = driver.expected(problem, DType::float32, {.threads = call.threads});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {seconds, static_cast<double>(status_bytes("VmHWM:") - before) / 1e6};
}

// In a child, so that its peak is its own.
OracleRun run_in_child(const Call& call) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("cannot make a pipe for the oracle's measurement");
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const OracleRun run = run_here(call);
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

OracleFigures measured(const Workshop& workshop, int rounds, const Call& call, std::string size) {
  std::vector<double> oracle_seconds, oracle_extra, reference_seconds, reference_extra;
  for (int round = 0; round < rounds; ++round) {  // in turn, so that a drift of the machine meets both
    Process process = workshop.spawn({.extra_bytes = std::int64_t{16} << 30});
    const Timing timing = measure(process, call, 1, 1, std::chrono::minutes(2));
    if (timing.status != Status::ok) throw std::runtime_error(call.form + " was not measured: " + timing.message);
    reference_seconds.push_back(timing.seconds.front());
    reference_extra.push_back(static_cast<double>(timing.resident_after - timing.resident_before) / 1e6);
    const OracleRun run = run_in_child(call);
    oracle_seconds.push_back(run.seconds);
    oracle_extra.push_back(run.extra_mb);
  }
  return {.kernel = call.kernel,
          .reference = call.form,
          .size = std::move(size),
          .oracle_seconds = median(oracle_seconds),
          .reference_seconds = median(reference_seconds),
          .extra_mb = median(oracle_extra),
          .reference_extra_mb = median(reference_extra)};
}

}  // namespace

void measure_oracle(const Workshop& workshop, int rounds, int threads,
                    const std::function<void(const OracleFigures&)>& done) {
  done(measured(workshop, rounds, live_call("einsum", 2, true, threads),
                "G 80, T 128, D 64, forward and all five gradients"));
  Call loss = loss_call(loss_rows);
  loss.form = "dense";
  loss.scalars = {{"ce_chunk", 0}};
  loss.threads = threads;
  done(measured(workshop, rounds, loss, "N 256, d 1280, V 50257, forward and both gradients"));
}

}  // namespace fractus::bench
