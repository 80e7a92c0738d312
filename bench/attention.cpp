#include "bench/attention.h"

#include "bench/live.h"
#include "bench/statistics.h"

namespace fractus::bench {
namespace {

Cell measure_cell(const Workshop& workshop, const std::string& form, std::int64_t batch, int threads, int runs) {
  Cell cell{.form = form, .batch = batch};
  for (bool backward : {false, true}) {
    Process process = workshop.spawn({.extra_bytes = std::int64_t{16} << 30});
    const Timing timing = measure(process, live_call(form, batch, backward, threads), 1, runs, std::chrono::minutes(5));
    cell.status = ending(timing.status);
    if (timing.status != Status::ok) return cell;
    (backward ? cell.forward_backward_ms : cell.forward_ms) =
        1e3 * median(backward ? timing.seconds : timing.forward_seconds);
    cell.resident_mb = static_cast<double>(timing.resident_after) / 1e6;
  }
  return cell;
}

}  // namespace

std::vector<Cell> measure_attention(const Workshop& workshop, int threads, int runs,
                                    const std::function<void(const Cell&)>& done) {
  std::vector<Cell> cells;
  for (const char* role : {"reference", "candidate"})
    for (const FormInfo& form : workshop.forms())
      if (form.kernel == "linear_attention" && form.role == role)
        for (std::int64_t batch : {2, 4, 8}) {
          cells.push_back(measure_cell(workshop, form.name, batch, threads, runs));
          done(cells.back());
        }
  return cells;
}

const Cell* einsum_beside(const std::vector<Cell>& cells, const Cell& cell) {
  for (const Cell& other : cells)
    if (other.form == "einsum" && other.batch == cell.batch && other.status == "ok") return &other;
  return nullptr;
}

}  // namespace fractus::bench
