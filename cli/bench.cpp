#include "cli/bench.h"

#include <fmt/format.h>

#include <thread>

#include "bench/attention.h"
#include "bench/cross_entropy.h"
#include "bench/oracle.h"
#include "cli/streams.h"
#include "cli/usage.h"

namespace fractus::cli {
namespace {

using nlohmann::json;

int bench_oracle(const Options& options) {
  const Workshop workshop;
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::string text = fmt::format("float32, {} threads, medians of interleaved runs\n", threads);
  text += fmt::format("  {:<17} {:<10} {:>9} {:>12}\n", "", "", "ms", "extra MB");
  json figures{{"threads", threads}};
  const auto add = [&](const bench::OracleFigures& f) {
    say(fmt::format("{}: {}\n", f.kernel, f.size));
    const auto line = [&](const std::string& kernel, const std::string& who, double seconds, double mb) {
      text += fmt::format("  {:<17} {:<10} {:>9.1f} {:>12.1f}\n", kernel, who, 1e3 * seconds, mb);
    };
    line(f.kernel, f.reference, f.reference_seconds, f.reference_extra_mb);
    line("", "oracle", f.oracle_seconds, f.extra_mb);
    text += fmt::format("  {}: the oracle takes {:.3f} of {}'s time\n", f.size, f.ratio(), f.reference);
    figures[f.kernel] = {{"reference", f.reference},
                         {"size", f.size},
                         {"ratio", f.ratio()},
                         {"oracle_seconds", f.oracle_seconds},
                         {"reference_seconds", f.reference_seconds},
                         {"extra_mb", f.extra_mb},
                         {"reference_extra_mb", f.reference_extra_mb}};
  };
  bench::measure_oracle(workshop, 5, threads, add);
  show(options, text, figures);
  return 0;
}

// "0.013 x", or nothing where there is no einsum to compare with.
std::string ratio(double figure, double of) { return of > 0 ? fmt::format("{:.3f}", figure / of) : "-"; }

int bench_attention(const Options& options) {
  const Workshop workshop;
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const auto progress = [](const bench::Cell& cell) {
    say(fmt::format("{} B {}: {}\n", cell.form, cell.batch, cell.status));
  };
  const std::vector<bench::Cell> cells = bench::measure_attention(workshop, threads, 8, progress);

  std::string text = fmt::format(
      "T 128, D 64, G = 40 B, carry active, float32, {} threads, median of 8, a process per cell\n", threads);
  text += fmt::format("  {:<14} {:>2} {:>10} {:>10} {:>12} {:>10} {:>12} {:>10}\n", "form", "B", "fwd ms", "/ einsum",
                      "fwd+bwd ms", "/ einsum", "resident MB", "/ einsum");
  json table = json::array();
  for (const bench::Cell& cell : cells) {
    json entry{{"form", cell.form}, {"B", cell.batch}, {"status", cell.status}};
    if (cell.status == "ok") {
      const bench::Cell none;
      const bench::Cell* beside = bench::einsum_beside(cells, cell);
      const bench::Cell& einsum = beside != nullptr ? *beside : none;
      text += fmt::format("  {:<14} {:>2} {:>10.1f} {:>10} {:>12.1f} {:>10} {:>12.0f} {:>10}\n", cell.form, cell.batch,
                          cell.forward_ms, ratio(cell.forward_ms, einsum.forward_ms), cell.forward_backward_ms,
                          ratio(cell.forward_backward_ms, einsum.forward_backward_ms), cell.resident_mb,
                          ratio(cell.resident_mb, einsum.resident_mb));
      entry.update({{"forward_ms", cell.forward_ms},
                    {"forward_backward_ms", cell.forward_backward_ms},
                    {"resident_mb", cell.resident_mb}});
      if (beside != nullptr)
        entry.update({{"ratio_forward", cell.forward_ms / einsum.forward_ms},
                      {"ratio_forward_backward", cell.forward_backward_ms / einsum.forward_backward_ms},
                      {"ratio_resident", cell.resident_mb / einsum.resident_mb}});
    } else {
      text += fmt::format("  {:<14} {:>2} {}\n", cell.form, cell.batch, cell.status);
    }
    table.push_back(entry);
  }
  show(options, text, {{"threads", threads}, {"cells", table}});
  return 0;
}

int bench_cross_entropy(const Options& options) {
  const Workshop workshop;
  const int threads = static_cast<int>(std::thread::hardware_concurrency());
  const auto progress = [](const bench::LossCell& cell) {
    say(fmt::format("{} N {} ce_chunk {}: {}\n", cell.form, cell.rows, cell.ce_chunk, cell.status));
  };
  const std::vector<bench::LossCell> cells = bench::measure_cross_entropy(workshop, threads, progress);

  std::string text = fmt::format(
      "d 1280, V 50257, float32, forward and both gradients, {} threads, medians of interleaved runs\n", threads);
  text += fmt::format("  {:<18} {:>5} {:>8} {:>8} {:>11} {:>8} {:>8} {:>8}\n", "form", "N", "ce_chunk", "fwd s",
                      "fwd+bwd s", "/ dense", "peak MB", "/ dense");
  json table = json::array();
  for (const bench::LossCell& cell : cells) {
    json entry{{"form", cell.form}, {"N", cell.rows}, {"ce_chunk", cell.ce_chunk}, {"status", cell.status}};
    if (cell.status == "ok") {
      const bench::LossCell none;
      const bench::LossCell* beside = bench::dense_beside(cells, cell);
      const bench::LossCell& dense = beside != nullptr ? *beside : none;
      text += fmt::format("  {:<18} {:>5} {:>8} {:>8.2f} {:>11.2f} {:>8} {:>8.0f} {:>8}\n", cell.form, cell.rows,
                          cell.ce_chunk, cell.forward_seconds, cell.seconds, ratio(cell.seconds, dense.seconds),
                          cell.peak_mb, ratio(cell.peak_mb, dense.peak_mb));
      entry.update({{"forward_seconds", cell.forward_seconds}, {"seconds", cell.seconds}, {"peak_mb", cell.peak_mb}});
      if (beside != nullptr)
        entry.update({{"ratio_seconds", cell.seconds / dense.seconds}, {"ratio_peak", cell.peak_mb / dense.peak_mb}});
    } else {
      text += fmt::format("  {:<18} {:>5} {:>8} {}\n", cell.form, cell.rows, cell.ce_chunk, cell.status);
    }
    table.push_back(entry);
  }
  show(options, text, {{"threads", threads}, {"cells", table}});
  return 0;
}

}  // namespace

void show(const Options& options, const std::string& text, const json& figures) {
  if (options.json != "-") print_whole(text);
  if (!options.json.empty()) write_json(options.json, figures.dump(1) + "\n");
}

int bench(const Options& options) {
  if (options.what == "power") return bench_power(options);
  if (options.what != "oracle" && options.what != "attention" && options.what != "cross_entropy")
    unknown("measurement", options.what, {"oracle", "attention", "cross_entropy", "power"});
  const Options none;
  if (!options.file.empty() || !options.kernel.empty() || options.preset != none.preset || options.seed != none.seed ||
      !options.dtype.empty() || !options.budget.empty() || !options.waive.empty())
    throw UsageError(
        fmt::format("bench {} takes --json alone; a file and a battery's options are for bench power", options.what));
  if (options.what == "oracle") return bench_oracle(options);
  return options.what == "attention" ? bench_attention(options) : bench_cross_entropy(options);
}

}  // namespace fractus::cli
