#include "bench/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "bench/statistics.h"
#include "contracts/cross_entropy.h"

namespace fractus::bench {
namespace {

constexpr std::int64_t width = 1280, words = 50257;

struct Size {
  std::int64_t rows;
  std::vector<std::int64_t> ce_chunks;
  int rounds;
};

// The training run's ce_chunk, 2048, and a quarter of it; at 256 rows either is one chunk.
const std::vector<Size> sizes{{256, {2048}, 7}, {4096, {512, 2048}, 3}};

// What `dense` needs at its peak: four matrices of (N,V) and one in reserve, the inputs and the gradients, here (as
// doubles) and there.
bool has_room(const Size& size) {
  const std::int64_t available = proc_bytes("/proc/meminfo", "MemAvailable:");
  return available == 0 || available > (5 * size.rows + 6 * width) * words * 4;
}

struct Lane {
  LossCell cell;
  Process process;
  std::vector<double> seconds, forward_seconds;
};

void run_once(Lane& lane, Call& call) {
  call.form = lane.cell.form;
  call.scalars = {{"ce_chunk", static_cast<double>(lane.cell.ce_chunk)}};
  const Timing timing = measure(lane.process, call, 0, 1, std::chrono::minutes(5));
  lane.cell.status = ending(timing.status);
  if (timing.status != Status::ok) return;
  lane.seconds.push_back(timing.seconds.front());
  lane.forward_seconds.push_back(timing.forward_seconds.front());
  lane.cell.peak_mb = std::max(lane.cell.peak_mb, static_cast<double>(timing.peak_extra_bytes) / 1e6);
}

}  // namespace

Call loss_call(std::int64_t rows) {
  std::mt19937_64 random(1);
  const auto uniform = [&](double bound) { return std::uniform_real_distribution<double>(-bound, bound)(random); };
  Array h = zeros("h", DType::float32, {rows, width}), W = zeros("W", DType::float32, {words, width});
  Array targets = zeros("targets", DType::int64, {rows});
  for (double& x : h.values) x = rounded(uniform(std::sqrt(3.0)), DType::float32);
  for (double& x : W.values) x = rounded(uniform(std::sqrt(3.0 / width)), DType::float32);
  for (double& x : targets.values) x = std::uniform_int_distribution<int>(0, words - 1)(random);
  Array cotangent = zeros("loss", DType::float32, {});
  cotangent.values = {1};
  return {.kernel = cross_entropy::contract().kernel,
          .inputs = {std::move(h), std::move(W), std::move(targets)},
          .cotangents = {std::move(cotangent)},
          .gradients = {true, true, false}};
}

std::vector<LossCell> measure_cross_entropy(const Workshop& workshop, int threads,
                                            const std::function<void(const LossCell&)>& done) {
  std::vector<LossCell> cells;
  for (const Size& size : sizes) {
    std::vector<Lane> lanes;
    const auto add = [&](const std::string& form, std::int64_t ce_chunk) {
      lanes.push_back({.cell = {.form = form, .rows = size.rows, .ce_chunk = ce_chunk},
                       .process = workshop.spawn({.extra_bytes = std::int64_t{16} << 30})});
    };
    add("dense", 0);
    for (const std::int64_t ce_chunk : size.ce_chunks)
      for (const FormInfo& form : workshop.forms())
        if (form.kernel == cross_entropy::contract().kernel && form.role == "candidate") add(form.name, ce_chunk);
    if (has_room(size)) {
      Call call = loss_call(size.rows);
      call.threads = threads;
      for (int round = 0; round < size.rounds; ++round)
        for (Lane& lane : lanes)
          if (lane.cell.status == "ok") run_once(lane, call);
    } else {
      for (Lane& lane : lanes) lane.cell.status = "no room in memory";
    }
    for (Lane& lane : lanes) {
      lane.cell.seconds = median(lane.seconds);
      lane.cell.forward_seconds = median(lane.forward_seconds);
      cells.push_back(lane.cell);
      done(cells.back());
    }
  }
  return cells;
}

const LossCell* dense_beside(const std::vector<LossCell>& cells, const LossCell& cell) {
  for (const LossCell& other : cells)
    if (other.form == "dense" && other.rows == cell.rows && other.status == "ok") return &other;
  return nullptr;
}

}  // namespace fractus::bench
