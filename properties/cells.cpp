#include "properties/cells.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "properties/sequential.h"

namespace fractus {
namespace {

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
std::uint64_t hash(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// A sum of `tokens` probabilities in any order, and the law's own normalization, are off by less, relatively.
double sum_slack(std::size_t tokens) { return static_cast<double>(tokens + 8) * 0x1p-51; }

// Cells that no token is in are left out: each would cost the bets half a logarithm.
Partition without_gaps(Partition partition) {
  std::vector<std::int32_t> new_name(static_cast<std::size_t>(partition.cells), -1);
  for (std::int32_t cell : partition.cell_of) new_name[static_cast<std::size_t>(cell)] = 0;
  partition.cells = 0;
  for (std::int32_t& name : new_name)
    if (name == 0) name = static_cast<std::int32_t>(partition.cells++);
  for (std::int32_t& cell : partition.cell_of) cell = new_name[static_cast<std::size_t>(cell)];
  return partition;
}

}  // namespace

Partition by_token(std::size_t tokens) {
  Partition partition{std::vector<std::int32_t>(tokens), static_cast<std::int64_t>(tokens)};
  std::iota(partition.cell_of.begin(), partition.cell_of.end(), 0);
  return partition;
}

Partition by_rank(std::span<const double> law, std::int64_t cells) {
  std::vector<std::size_t> order(law.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return law[a] > law[b]; });
  Partition partition{std::vector<std::int32_t>(law.size()), cells};
  double before = 0;
  for (std::size_t token : order) {
    const auto cell = static_cast<std::int64_t>(before * static_cast<double>(cells));
    partition.cell_of[token] = static_cast<std::int32_t>(std::min(cell, cells - 1));
    before += law[token];
  }
  return without_gaps(std::move(partition));
}

Partition by_index(std::size_t tokens, std::int64_t cells) {
  Partition partition{std::vector<std::int32_t>(tokens), cells};
  if (tokens == 0) return partition;
  const std::size_t between = tokens > 2 ? tokens - 2 : 1, ranges = static_cast<std::size_t>(cells) - 2;
  for (std::size_t token = 1; token < tokens; ++token)
    partition.cell_of[token] = static_cast<std::int32_t>(1 + (token - 1) * ranges / between);
  if (tokens > 1) partition.cell_of.back() = static_cast<std::int32_t>(cells - 1);
  return without_gaps(std::move(partition));
}

Partition by_hash(std::size_t tokens, std::int64_t cells, std::uint64_t salt) {
  Partition partition{std::vector<std::int32_t>(tokens), cells};
  for (std::size_t token = 0; token < tokens; ++token)
    partition.cell_of[token] = static_cast<std::int32_t>(hash(token ^ salt) % static_cast<std::uint64_t>(cells));
  return without_gaps(std::move(partition));
}

std::vector<double> log_upper(const Partition& partition, std::span<const double> law, double slack) {
  std::vector<double> mass(static_cast<std::size_t>(partition.cells));
  for (std::size_t token = 0; token < law.size(); ++token)
    if (law[token] >= least_probability) mass[static_cast<std::size_t>(partition.cell_of[token])] += law[token];
  // No probability exceeds 1.
  for (double& m : mass) m = std::min(std::log(m) + slack + sum_slack(law.size()), 0.0);
  return mass;
}

std::vector<double> accumulated(std::span<const double> law, Order order, std::uint64_t salt) {
  std::vector<std::size_t> tokens(law.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  if (order == Order::rank)
    std::stable_sort(tokens.begin(), tokens.end(), [&](std::size_t a, std::size_t b) { return law[a] > law[b]; });
  else if (order == Order::hash)  // one to one on 64 bits, so there are no ties
    std::sort(tokens.begin(), tokens.end(),
              [&](std::size_t a, std::size_t b) { return hash(a ^ salt) < hash(b ^ salt); });
  std::vector<double> before(law.size());
  double sum = 0;
  for (const std::size_t token : tokens) {
    before[token] = sum;
    sum += law[token];
  }
  return before;
}

double before(std::span<const double> law, Order order, std::uint64_t salt, std::size_t token) {
  double sum = 0;
  if (order == Order::index) {
    sum = std::accumulate(law.begin(), law.begin() + static_cast<std::ptrdiff_t>(token), 0.0);
  } else if (order == Order::rank) {
    for (std::size_t other = 0; other < law.size(); ++other)
      if (law[other] > law[token] || (law[other] == law[token] && other < token)) sum += law[other];
  } else {
    const std::uint64_t own = hash(token ^ salt);
    for (std::size_t other = 0; other < law.size(); ++other)
      if (hash(other ^ salt) < own) sum += law[other];
  }
  return sum;
}

std::int64_t place(double before, double probability, double uniform, std::int64_t cells) {
  return std::min(static_cast<std::int64_t>((before + uniform * probability) * static_cast<double>(cells)), cells - 1);
}

double place_log_upper(std::size_t tokens, std::int64_t cells, double slack) {
  // A point of a token's interval is computed to within the error of a sum of probabilities. The true intervals tile
  // [0, 1), so what a cell gains are points that truly lie as close as that to one of its two ends.
  const double gained = 2 * static_cast<double>(cells) * sum_slack(tokens);
  return std::min(-std::log(static_cast<double>(cells)) + slack + gained, 0.0);
}

Repeats seen_log_upper(std::size_t tokens, double mass, double slack) {
  // What is left is subtracted: its error is that of a sum up to 1.
  const double left = std::max(1 - mass, 0.0) + sum_slack(tokens);
  return {std::min(std::log(left) + slack, 0.0), std::min(std::log(mass) + slack + sum_slack(tokens), 0.0)};
}

Repeats repeats_log_upper(std::span<const double> law, std::size_t token, double slack) {
  // 1 - p is summed, not subtracted: the other tokens' bounds are relative.
  double others = 0;
  for (std::size_t other = 0; other < law.size(); ++other)
    if (other != token && law[other] >= least_probability) others += law[other];
  const double more = slack + sum_slack(law.size());
  return {std::min(std::log(others) + more, 0.0), std::min(std::log(law[token]) + more, 0.0)};
}

}  // namespace fractus
