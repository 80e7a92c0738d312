#include "reports/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/words.h"

namespace fractus {
namespace {

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", kind, x1, y1, x2,
                     y2);
}

std::string text(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor, escaped(words));
}

std::string count_text(std::int64_t n) {
  const auto many = static_cast<double>(n);
  if (n < 10'000) return fmt::format("{}", n);
  return n < 1'000'000 ? fmt::format("{:.0f} k", many / 1e3) : fmt::format("{:.3g} M", many / 1e6);
}

// "2^-3 to 2^-2"
std::string range_text(std::size_t bin) {
  if (bin == 0) return "exactly 0";
  if (bin + 1 == Histogram::bins) return "over the bound";
  const int upper = Histogram::smallest + static_cast<int>(bin) - 1;
  return bin == 1 ? fmt::format("up to 2^{}", upper) : fmt::format("2^{} to 2^{}", upper - 1, upper);
}

}  // namespace

std::string histogram_figure(const OutputError& error) {
  constexpr double width = 260, left = 38, bar = 17, base = 92, top = 8;
  const auto& count = error.histogram.count;
  const std::int64_t most = std::max<std::int64_t>(1, *std::max_element(count.begin(), count.end()));
  const auto height = [&](std::int64_t n) {
    return (base - top) * std::log1p(static_cast<double>(std::max<std::int64_t>(n, 0))) /
           std::log1p(static_cast<double>(most));
  };
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {:.0f} 112\" role=\"img\" aria-label=\"histogram of error over bound of {}\">\n",
                  width, escaped(error.key));
  svg += line(left, base, left + bar * Histogram::bins, base, "axis") +
         text(left - 4, top + 8, "end", count_text(most)) + text(left - 4, base, "end", "0");
  for (std::size_t i = 0; i < Histogram::bins; ++i) {
    if (count[i] <= 0) continue;
    const double h = std::max(1.5, height(count[i]));
    svg += fmt::format(
        "\n<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}: {} "
        "elements</title></rect>",
        i + 1 == Histogram::bins ? "over" : "bar", left + bar * static_cast<double>(i) + 1, base - h, bar - 2, h,
        range_text(i), count[i]);
  }
  // Bin i ends at 2^(smallest + i - 1), so x is linear in the logarithm between the first edge and the bound.
  const double first_edge = left + 2 * bar, bound = left + bar * (Histogram::bins - 1);
  svg += "\n" + line(bound, top, bound, base, "bound");
  if (error.known_good && *error.known_good > 0) {
    const double octaves = std::log2(*error.known_good) - Histogram::smallest;
    const double x = std::clamp(first_edge + bar * octaves, left + bar, bound + bar);
    svg += line(x, top, x, base, "known");
  }
  svg += text(left + bar / 2, base + 14, "middle", "0");
  for (const int exponent : {Histogram::smallest, Histogram::smallest / 2, -2})
    svg += text(first_edge + bar * (exponent - Histogram::smallest), base + 14, "middle",
                fmt::format("1/{}", 1 << -exponent));
  svg += text(bound, base + 14, "middle", "1");
  return svg + "\n</svg>\n";
}

std::map<std::string, std::vector<Held>> series_of(const std::vector<Held>& held) {
  std::map<std::string, std::vector<Held>> series;
  for (const Held& point : held) series[point.series].push_back(point);
  for (auto& [name, points] : series)
    std::stable_sort(points.begin(), points.end(), [](const Held& a, const Held& b) { return a.extent < b.extent; });
  return series;
}

std::string growth_figure(const std::vector<Held>& points) {
  constexpr double width = 260, height = 130, left = 54, right = 250, base = 104, top = 12;
  double widest = 1, most = 1;
  for (const Held& point : points) {
    widest = std::max(widest, static_cast<double>(point.extent));
    most = std::max(most, static_cast<double>(std::max(point.bytes, point.allowed.value_or(0))));
  }
  const auto x = [&](const Held& point) { return left + (right - left) * static_cast<double>(point.extent) / widest; };
  const auto y = [&](std::int64_t bytes) { return base - (base - top) * static_cast<double>(bytes) / most; };
  std::string path, allowed, dots;
  for (const Held& point : points) {
    path += fmt::format("{:.1f},{:.1f} ", x(point), y(point.bytes));
    if (point.allowed) allowed += fmt::format("{:.1f},{:.1f} ", x(point), y(*point.allowed));
    dots += fmt::format("\n<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"><title>{}</title></circle>",
                        x(point), y(point.bytes),
                        escaped(fmt::format("{} {}: {}", point.symbol, point.extent, bytes_text(point.bytes))));
  }
  std::string svg = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"bytes held over {}\">\n",
                                width, height, escaped(points.front().symbol));
  svg += line(left, base, right, base, "axis") + line(left, top, left, base, "axis");
  svg += text(left - 4, top + 6, "end", bytes_text(static_cast<std::int64_t>(most))) + text(left - 4, base, "end", "0");
  svg += text(right, base + 14, "end", fmt::format("{} {}", points.front().symbol, static_cast<std::int64_t>(widest))) +
         text(left, base + 14, "middle", "0");
  // Over the path: what is held is as a rule just what is declared.
  svg += fmt::format("\n<polyline class=\"path\" points=\"{}\"/>", path);
  if (!allowed.empty()) svg += fmt::format("\n<polyline class=\"allowed\" points=\"{}\"/>", allowed);
  return svg + dots + "\n</svg>\n";
}

}  // namespace fractus
