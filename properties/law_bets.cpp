#include "properties/law_bets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace fractus {
namespace {

// Tables of what lies before each token: three of them of this many numbers are 50 MB.
constexpr std::size_t most_tabled = 2'000'000;
constexpr std::size_t most_rows_by_themselves = 8;
// Laws that differ by no more are one: what is computed of them differs by roundings of the base.
constexpr double same_law = 1e-12;
constexpr std::uint64_t salt = 0x5EED;  // of the hashed order: any fixed one

std::string listed(const std::vector<std::size_t>& rows) {
  if (rows.size() == 1) return fmt::format("row {}", rows[0]);
  if (rows.back() - rows.front() + 1 == rows.size()) return fmt::format("rows {} to {}", rows.front(), rows.back());
  const std::size_t shown = std::min<std::size_t>(rows.size(), 3);
  return fmt::format("rows {}{}", fmt::join(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < rows.size() ? fmt::format(" ... {}", rows.back()) : "");
}

std::optional<double> common_slack_of(const oracle::Law& law, std::size_t tokens) {
  double slack = 0;
  for (std::size_t n = 0; n < law.slack.size(); ++n) {
    slack = std::max(slack, law.slack[n]);
    for (std::size_t i = 0; n > 0 && i < tokens; ++i) {
      const double a = law.probability[i], b = law.probability[n * tokens + i];
      if (std::fabs(a - b) > same_law * std::max(a, b)) return std::nullopt;
    }
  }
  // |log(a/b)| <= 2 |a - b| / max(a, b) for so small a difference.
  return slack + 2 * same_law;
}

}  // namespace

std::vector<Rows> row_classes(std::size_t rows, std::size_t chunk) {
  std::vector<Rows> classes(1);
  for (std::size_t n = 0; n < rows; ++n) classes[0].members.push_back(n);
  classes[0].name = "all rows";
  if (rows > 1 && rows <= most_rows_by_themselves)
    for (std::size_t n = 0; n < rows; ++n) classes.push_back({"", {n}});
  if (chunk > 1 && chunk < rows) {
    Rows first{"the first rows of chunks", {}}, last{"the last rows of chunks", {}}, rest{"the short last chunk", {}};
    for (std::size_t n = 0; n < rows; ++n) {
      if (n % chunk == 0) first.members.push_back(n);
      if (n % chunk == chunk - 1 || n + 1 == rows) last.members.push_back(n);
      if (n >= rows - rows % chunk) rest.members.push_back(n);
    }
    classes.push_back(std::move(first));
    classes.push_back(std::move(last));
    if (!rest.members.empty()) classes.push_back(std::move(rest));
  }
  for (Rows& each : classes) {
    const std::string which = listed(each.members);
    each.name = each.name.empty() ? which : fmt::format("{} ({})", each.name, which);
  }
  return classes;
}

Laws::Laws(const oracle::Law& law)
    : law_(law),
      tokens_(law.slack.empty() ? 0 : law.probability.size() / law.slack.size()),
      common_slack_(common_slack_of(law, tokens_)) {}

std::int64_t Laws::place(std::size_t n, Order order, std::size_t token, double uniform, std::int64_t cells) {
  const std::span<const double> law = row(n);
  if (rows() * tokens_ > most_tabled)
    return fractus::place(before(law, order, salt, token), law[token], uniform, cells);
  auto& table = before_[order];
  if (table.empty()) table.resize(rows());
  if (table[n].empty()) table[n] = accumulated(law, order, salt);
  return fractus::place(table[n][token], law[token], uniform, cells);
}

Bet::Bet(std::string of, std::size_t first_row, std::string cell_words, std::vector<double> share, std::int64_t cells,
         std::int64_t contexts)
    : of_(std::move(of)),
      first_row_(first_row),
      cell_words_(std::move(cell_words)),
      share_(std::move(share)),
      cells_(cells),
      contexts_(contexts),
      process_(cells, contexts),
      count_(static_cast<std::size_t>(cells * contexts)),
      expected_(static_cast<std::size_t>(cells)) {}

void Bet::observe(std::int64_t cell, double log_upper, std::int64_t context) {
  process_.observe(cell, log_upper, context);
  ++count_[static_cast<std::size_t>(context * cells_ + cell)];
}

void Bet::observe(bool again, const Repeats& upper) {
  observe(again ? 1 : 0, again ? upper.yes : upper.no);
  expected_[1] += std::exp(upper.yes);
}

double Bet::shown(double slack) const {
  if (share_.empty()) return 1;
  return smallest_shown(process_.draws(), cells_, contexts_, slack, run_level.log_threshold());
}

std::string Bet::text() const {
  const std::string e_value =
      fmt::format("e-value 10^{:.1f}, refused from 10^{:.1f} on", process_.log_largest() / std::log(10),
                  run_level.log_threshold() / std::log(10));
  if (share_.empty())
    return fmt::format("{}: {} {} times in {} draws, {:.4g} are expected; {}", of_, cell_words_, count_[1],
                       process_.draws(), expected_[1], e_value);
  std::int64_t context = 0, cell = 0, in_context = 0;
  double furthest = -1;
  for (std::int64_t c = 0; c < contexts_; ++c) {
    std::int64_t total = 0;
    for (std::int64_t x = 0; x < cells_; ++x) total += count_[static_cast<std::size_t>(c * cells_ + x)];
    for (std::int64_t x = 0; x < cells_; ++x) {
      const double expected = share_[static_cast<std::size_t>(x)] * static_cast<double>(total);
      const double off = std::fabs(static_cast<double>(count_[static_cast<std::size_t>(c * cells_ + x)]) - expected) /
                         std::sqrt(expected + 1e-9);
      if (off <= furthest) continue;
      furthest = off;
      context = c, cell = x, in_context = total;
    }
  }
  const std::int64_t seen = count_[static_cast<std::size_t>(context * cells_ + cell)];
  const std::string where = contexts_ > 1
                                ? fmt::format("{} of {} where the earlier one was in {}", cell, cells_, context)
                                : fmt::format("{} of {}", cell, cells_);
  return fmt::format("{}: {} {} came {} times in {} draws, a share of {:.4g}, and the law gives it {:.4g}; {}", of_,
                     cell_words_, where, seen, in_context,
                     in_context == 0 ? 0 : static_cast<double>(seen) / static_cast<double>(in_context),
                     share_[static_cast<std::size_t>(cell)], e_value);
}

Bet& Bets::add(Bet bet) {
  if (bets_.size() >= static_cast<std::size_t>(most_bets))
    throw std::logic_error("law: more e-processes than the level of the run is divided among");
  bets_.push_back(std::make_unique<Bet>(std::move(bet)));
  return *bets_.back();
}

const Bet* Bets::refuted() const {
  const Bet* most = nullptr;
  for (const auto& bet : bets_)
    if (bet->refuted() && (most == nullptr || bet->log_largest() > most->log_largest())) most = bet.get();
  return most;
}

std::string Bets::note(double slack) const {
  std::vector<std::string> order;
  std::map<std::string, std::pair<std::int64_t, double>> best;
  for (const auto& bet : bets_) {
    const auto [at, added] = best.try_emplace(bet->of(), bet->draws(), 1.0);
    if (added) order.push_back(bet->of());
    at->second.second = std::min(at->second.second, bet->shown(slack));
  }
  std::vector<std::string> parts;
  for (const std::string& of : order)
    parts.push_back(fmt::format("{}: {} draws, {}", of, best[of].first,
                                best[of].second < 1 ? fmt::format("{:.2g}", best[of].second) : "none"));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string words(Order order, const std::string& cell) {
  return cell + (order == Order::rank    ? " by rank, from the likeliest on,"
                 : order == Order::index ? " by index"
                                         : " in a hashed order");
}

}  // namespace fractus
