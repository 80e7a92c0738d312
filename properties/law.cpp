// Property, law: a draw's right answers are a law, so equivalence is statistical. Each row's tokens against its own
// law, by token, by rank, by index and hashed (small, large); rows of a call against each other (pairs); calls under
// related seeds against each other, and the same seed against itself (seeds). Draws are bet against and the bets are
// looked at after every call: a wrong sampler costs the draws that its fault takes to show, and a right one is refused
// with a probability of 1e-6 at most over the whole run (properties/sequential.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>

#include "properties/all.h"
#include "properties/cases.h"
#include "properties/compare.h"
#include "properties/law_bets.h"
#include "properties/random.h"

namespace fractus {
namespace {

constexpr const char* self = "law";

std::vector<Case> plan(const Driver& driver, const PlanSettings& settings) {
  std::vector<Case> cases;
  for (DType dtype : settings.dtypes) {
    const bool first = dtype == settings.dtypes.front();
    for (const Draws& draws : driver.draws(settings.block, settings.live && dtype == DType::float32)) {
      if (!first && !draws.each_dtype) continue;
      Case c = base_case(driver, self, dtype, draws.dims, draws.fill);
      c.variant = draws.variant;
      if (draws.layout != Layout::contiguous)
        for (const TensorSpec& spec : driver.contract->inputs) c.layouts[spec.name] = draws.layout;
      cases.push_back(c);
    }
  }
  if (cases.size() > static_cast<std::size_t>(most_law_cases))
    throw std::logic_error("law: more cases than the level of the run is divided among");
  return cases;
}

// Calls of the case's problem under other seeds, each answer looked at by itself first.
class Sampler {
 public:
  Sampler(Expectation& expectation, const Subject& subject)
      : laws(expectation.law()),
        // Not the stream of the values: seeds of the draws must not follow from them.
        random(expectation.of().seed * 0x9E3779B97F4A7C15 + 0x1A3),
        expectation_(expectation),
        subject_(subject),
        call_(call_of(expectation, subject)),
        seeds_(static_cast<std::uint64_t>(expectation.driver().seeds)) {}

  Laws laws;
  Random random;  // of seeds, and of the points in places
  Outcome outcome;

  std::uint64_t seeds() const { return seeds_; }
  std::uint64_t any_seed() { return random.bits() % seeds_; }
  // The ends of the range come first: what a form does to its seed is most likely to go wrong there. A call that is
  // made twice under one seed is the same draw, and no new one: the chance of that is above the level.
  std::uint64_t new_seed() {
    for (std::uint64_t end : {std::uint64_t{0}, std::uint64_t{1}, seeds_ - 1})
      if (end < seeds_ && used_.insert(end).second) return end;
    for (std::uint64_t seed = any_seed();; seed = any_seed())
      if (used_.insert(seed).second) return seed;
  }

  Call call(std::uint64_t seed) const {
    Call call = call_;
    call.scalars[expectation_.driver().seed_scalar] = static_cast<double>(seed);
    return call;
  }

  // Empty where the answer is a finding already.
  std::optional<std::vector<std::size_t>> drawn(std::uint64_t seed, int threads = 1) {
    Call its = call(seed);
    its.threads = threads;
    return tokens_of(subject_.call(its));
  }

  std::optional<std::vector<std::size_t>> tokens_of(const Answer& answer) {
    if (auto finding = trouble(answer)) {
      outcome.finding = std::move(finding);
      return std::nullopt;
    }
    merge(outcome, compare_outputs(expectation_, answer));
    if (outcome.finding) return std::nullopt;
    const std::vector<double>& values = answer.outputs.front().values;
    return std::vector<std::size_t>(values.begin(), values.end());
  }

  std::size_t chunk() const {
    return static_cast<std::size_t>(expectation_.of().dims.at(expectation_.driver().chunk_symbol));
  }
  std::size_t width() const {  // numbers of input for each row and each token
    return value_count(expectation_.problem().inputs) / (laws.rows() + laws.tokens());
  }

 private:
  Expectation& expectation_;
  const Subject& subject_;
  Call call_;
  std::uint64_t seeds_;
  std::set<std::uint64_t> used_;
};

// So many calls give `draws` rows, as far as they cost no more than about a second of a plain sampler; for any size, so
// that a shrunk case is affordable as well.
std::int64_t calls_for(const Sampler& sampler, double draws) {
  const auto rows = static_cast<double>(sampler.laws.rows()), tokens = static_cast<double>(sampler.laws.tokens());
  const double cost = rows * tokens * (1 + static_cast<double>(sampler.width()) / 64);
  return static_cast<std::int64_t>(std::clamp(std::min(draws / rows, 5e7 / cost), 3.0, 400.0));
}

// Looked at after every call; true where the draws are refused.
bool refused(const Bets& bets, const std::string& kind, Outcome& outcome) {
  const Bet* bet = bets.refuted();
  if (bet == nullptr) return false;
  Finding finding{.kind = kind, .tensor = "tokens", .text = bet->text()};
  finding.index = {static_cast<std::int64_t>(bet->first_row())};
  outcome.finding = std::move(finding);
  return true;
}

double largest_slack(const Laws& laws) {
  double slack = 0;
  for (std::size_t n = 0; n < laws.rows(); ++n) slack = std::max(slack, laws.slack(n));
  return slack;
}

// Level and figures of a case, for the report.
std::string note_of(const Case& c, const Laws& laws, const Bets& bets) {
  return fmt::format(
      "{} of {} tokens, {} {}, {}: at level {:.0e} over the run, the smallest total variation that shows: {}",
      c.variant, laws.tokens(), c.fill, name(c.dtype), laws.common_slack() ? "one law" : "a law for each row",
      run_level.total, bets.note(largest_slack(laws)));
}

// Looks at each draw of its rows, and bets.
struct Watcher {
  const Rows* rows;
  std::function<void(std::size_t n, std::size_t token)> see;
};

// Partitions of one law, that of row n: they see a token's own probability, where places blur it.
void watch_cells(const Rows& rows, const Laws& laws, std::size_t n, double slack, bool small, Bets& bets,
                 std::vector<Watcher>& watchers) {
  const std::size_t V = laws.tokens();
  const std::span<const double> law = laws.row(n);
  const auto watch = [&](const std::string& cell_words, Partition partition) {
    std::vector<double> upper = log_upper(partition, law, slack), share;
    for (const double each : upper) share.push_back(std::exp(each));
    Bet& bet = bets.add({rows.name, rows.members.front(), cell_words, std::move(share), partition.cells, 1});
    watchers.push_back({&rows, [&bet, cell_of = std::move(partition.cell_of), upper = std::move(upper)](
                                   std::size_t, std::size_t token) {
                          const std::int32_t cell = cell_of[token];
                          bet.observe(cell, upper[static_cast<std::size_t>(cell)]);
                        }});
  };
  if (small) watch("the token", by_token(V));
  if (small && rows.members.size() == 1) return;  // few draws, which its tokens say most of
  if (V > 3) watch(words(Order::index, "of the first token, all others and the last the cell"), by_index(V, 3));
  for (const std::int64_t cells : {8, 64}) {
    if (static_cast<std::size_t>(cells) >= V) continue;
    watch(words(Order::rank, "the cell"), by_rank(law, cells));
    watch(words(Order::index, "the cell"), by_index(V, cells));
    if (rows.members.size() == 1) return;
  }
  if (small) return;
  watch(words(Order::hash, "the cell"), by_hash(V, 64, 1));
  Bet& bet = bets.add({rows.name, rows.members.front(), "a token that had been drawn before came", {}, 2, 1});
  watchers.push_back(
      {&rows, [&bet, law, slack, V, seen = std::vector<bool>(V), mass = 0.0](std::size_t, std::size_t token) mutable {
         bet.observe(seen[token], seen_log_upper(V, mass, slack));
         if (!seen[token]) mass += law[token];
         seen[token] = true;
       }});
}

// Rows that each have a law of their own share places.
void watch_places(const Rows& rows, Laws& laws, std::int64_t cells, Random& random, Bets& bets,
                  std::vector<Watcher>& watchers) {
  const std::vector<double> share(static_cast<std::size_t>(cells), 1 / static_cast<double>(cells));
  for (const Order order : {Order::rank, Order::index, Order::hash}) {
    Bet& bet = bets.add({rows.name, rows.members.front(), words(order, "the place"), share, cells, 1});
    watchers.push_back({&rows, [&bet, &laws, &random, order, cells](std::size_t n, std::size_t token) {
                          bet.observe(laws.place(n, order, token, random.uniform(), cells),
                                      place_log_upper(laws.tokens(), cells, laws.slack(n)));
                        }});
  }
}

Outcome check_rows(Expectation& expectation, const Subject& subject, bool small) {
  Sampler sampler(expectation, subject);
  Laws& laws = sampler.laws;
  const std::vector<Rows> classes = row_classes(laws.rows(), sampler.chunk());
  const std::int64_t calls = calls_for(sampler, 60'000);
  Bets bets;
  std::vector<Watcher> watchers;
  for (const Rows& rows : classes) {
    const std::size_t n = rows.members.front();
    if (laws.common_slack())
      watch_cells(rows, laws, 0, *laws.common_slack(), small, bets, watchers);
    else if (rows.members.size() == 1)
      watch_cells(rows, laws, n, laws.slack(n), small, bets, watchers);
    else  // more places learn from more draws
      watch_places(rows, laws, calls * static_cast<std::int64_t>(rows.members.size()) < 5000 ? 8 : 16, sampler.random,
                   bets, watchers);
  }
  for (std::int64_t k = 0; k < calls; ++k) {
    // A second thread may take another path, which has to have the same law.
    const auto tokens = sampler.drawn(sampler.new_seed(), k % 2 == 0 ? 1 : 2);
    if (!tokens) return sampler.outcome;
    for (const Watcher& watcher : watchers)
      for (const std::size_t n : watcher.rows->members) watcher.see(n, (*tokens)[n]);
    if (refused(bets, "law", sampler.outcome)) return sampler.outcome;
  }
  sampler.outcome.note = note_of(expectation.of(), laws, bets);
  return sampler.outcome;
}

// What is drawn later against what was drawn earlier: its place by index and by rank, given the place of the earlier
// one, and whether it is the same token. Noise that two rows share moves their places together where a cumulative law
// is inverted, and repeats tokens where a race of all tokens decides.
class Dependence {
 public:
  Dependence(const std::string& of, std::size_t first_row, Laws& laws, double pairs, Bets& bets)
      : laws_(laws), cells_(pairs < 3000 ? 4 : 8) {
    const std::vector<double> share(static_cast<std::size_t>(cells_), 1 / static_cast<double>(cells_));
    for (const Order order : {Order::index, Order::rank})
      places_.push_back({order, &bets.add({of, first_row, words(order, "the place"), share, cells_, cells_})});
    repeats_ = &bets.add({of, first_row, "the earlier one's token came again", {}, 2, 1});
  }

  void see(std::size_t earlier_row, std::size_t earlier, std::size_t later_row, std::size_t later, Random& random) {
    for (const auto& [order, bet] : places_) {
      const std::int64_t given = laws_.place(earlier_row, order, earlier, random.uniform(), cells_);
      bet->observe(laws_.place(later_row, order, later, random.uniform(), cells_),
                   place_log_upper(laws_.tokens(), cells_, laws_.slack(later_row)), given);
    }
    repeats_->observe(later == earlier, repeats_log_upper(laws_.row(later_row), earlier, laws_.slack(later_row)));
  }

 private:
  Laws& laws_;
  std::int64_t cells_;
  std::vector<std::pair<Order, Bet*>> places_;
  Bet* repeats_;
};

// Rows of one call. Each of a pair's later rows is bet on once, and its earlier one has been drawn before it.
Outcome check_pairs(Expectation& expectation, const Subject& subject) {
  Sampler sampler(expectation, subject);
  Laws& laws = sampler.laws;
  const std::size_t rows = laws.rows(), chunk = sampler.chunk();
  const std::int64_t calls = calls_for(sampler, 20'000);
  struct Pairs {
    std::vector<std::pair<std::size_t, std::size_t>> all;  // earlier row, later row
    std::unique_ptr<Dependence> dependence;
  };
  Bets bets;
  std::vector<Pairs> kinds;
  const auto watch = [&](const std::string& of, std::vector<std::pair<std::size_t, std::size_t>> pairs) {
    if (pairs.empty()) return;
    const double draws = static_cast<double>(pairs.size()) * static_cast<double>(calls);
    auto dependence = std::make_unique<Dependence>(of, pairs.front().second, laws, draws, bets);
    kinds.push_back({std::move(pairs), std::move(dependence)});
  };
  std::set<std::size_t> lags{chunk, 2 * chunk, rows / 2, rows - 1};
  for (std::size_t lag = 1; lag <= 128; lag *= 2) lags.insert(lag);  // where a kernel's own groups of rows may repeat
  for (const std::size_t lag : lags) {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t n = lag; lag > 0 && n < rows; ++n) pairs.emplace_back(n - lag, n);
    watch(lag == 1 ? "each row and the one before it" : fmt::format("each row and the one {} before it", lag), pairs);
  }
  std::vector<std::pair<std::size_t, std::size_t>> at_borders;
  for (std::size_t n = chunk; chunk > 1 && n < rows; n += chunk) at_borders.emplace_back(n - 1, n);
  watch("the first row of a chunk and the one before it", at_borders);
  std::vector<std::pair<std::size_t, std::size_t>> any;
  for (std::size_t n = 1; n < rows; ++n) any.emplace_back(sampler.random.bits() % n, n);
  watch("each row and some other before it", any);
  for (std::int64_t k = 0; k < calls; ++k) {
    const auto tokens = sampler.drawn(sampler.new_seed());
    if (!tokens) return sampler.outcome;
    for (const Pairs& pairs : kinds) {
      for (const auto& [earlier, later] : pairs.all)
        pairs.dependence->see(earlier, (*tokens)[earlier], later, (*tokens)[later], sampler.random);
    }
    if (refused(bets, "dependent", sampler.outcome)) return sampler.outcome;
  }
  sampler.outcome.note = note_of(expectation.of(), laws, bets);
  return sampler.outcome;
}

// Two seeds that a kernel might take for one, and which row of the first would then be like row n of the second.
struct Related {
  std::string of;
  std::function<std::uint64_t(std::uint64_t seed, Random&)> other;
  std::function<std::size_t(std::size_t n)> row = [](std::size_t n) { return n; };
};

std::vector<Related> related_seeds(std::uint64_t seeds, std::size_t chunk) {
  const auto next = [](std::uint64_t seed, Random&) { return seed + 1; };
  const auto twice = [](std::uint64_t seed, Random&) { return 2 * seed; };  // beyond the range it is drawn again
  const auto flipped = [](std::uint64_t bit) {
    return [bit](std::uint64_t seed, Random&) { return seed ^ (std::uint64_t{1} << bit); };
  };
  std::vector<Related> all{
      {"a seed and the next", next},
      {"a row under a seed and the one before it under the next seed", next, [](std::size_t n) { return n + 1; }},
      {"a row under a seed and its neighbour where the last bit of both numbers differs", flipped(0),
       [](std::size_t n) { return n ^ 1; }},
      {"a seed and twice that", twice},
      {"a seed and the one whose highest bit differs", flipped(31)},
      {"a seed and the one whose bit 16 differs", flipped(16)},
      {"a seed and one whose lower half is the same",
       [seeds](std::uint64_t seed, Random& random) { return (seed & 0xFFFF) | (random.bits() % seeds & ~0xFFFFull); }},
      {"a seed and one whose higher half is the same",
       [](std::uint64_t seed, Random& random) { return (seed & ~0xFFFFull) | (random.bits() & 0xFFFF); }},
  };
  if (chunk > 1) {
    const auto chunk_behind = [chunk](std::size_t n) { return n + chunk; };
    all.push_back({"a row under a seed and the one a chunk before it under twice that", twice, chunk_behind});
    all.push_back({"a row under a seed and the one a chunk before it under the next seed", next, chunk_behind});
  }
  return all;
}

// The same tokens for the same seed, whatever was called before and whatever the process. What was called before are
// other rows under this very seed, and the same ones under another.
std::optional<Finding> same_again(Sampler& sampler, const Subject& subject, Expectation& expectation) {
  const Call call = sampler.call(sampler.any_seed());
  Case of_others = expectation.of();
  ++of_others.seed;
  Expectation others(expectation.driver(), of_others, expectation.threads());
  Call before = call_of(others, subject);
  before.scalars[expectation.driver().seed_scalar] = call.scalars.at(expectation.driver().seed_scalar);
  if (auto outcome = call_and_compare(others, subject, before); outcome.finding) return outcome.finding;
  const Answer first = subject.call(call);
  if (!sampler.tokens_of(first)) return sampler.outcome.finding;
  if (!sampler.drawn(sampler.any_seed())) return sampler.outcome.finding;
  const Answer again = subject.call(call);
  if (!sampler.tokens_of(again)) return sampler.outcome.finding;
  const std::vector<Answer> fresh = subject.call_fresh({call});
  if (!sampler.tokens_of(fresh.front())) return sampler.outcome.finding;
  const std::vector<double>& tokens = first.outputs.front().values;
  for (const auto& [answer, when] :
       {std::pair{&again, "after another call,"}, {&fresh.front(), "in a fresh process,"}}) {
    const std::vector<double>& its = answer->outputs.front().values;
    for (std::size_t n = 0; n < tokens.size(); ++n) {
      if (tokens[n] == its[n]) continue;
      Finding finding{.kind = "not-repeated", .tensor = "tokens", .index = {static_cast<std::int64_t>(n)}};
      finding.expected = tokens[n], finding.got = its[n];
      finding.text = fmt::format("row {} drew the token {} and, under the same seed {} {}", n, tokens[n], when, its[n]);
      return finding;
    }
  }
  return std::nullopt;
}

Outcome check_seeds(Expectation& expectation, const Subject& subject) {
  constexpr int pairs_each = 6;
  Sampler sampler(expectation, subject);
  Laws& laws = sampler.laws;
  if (auto finding = same_again(sampler, subject, expectation)) {
    sampler.outcome.finding = std::move(finding);
    return sampler.outcome;
  }
  Bets bets;
  std::deque<Dependence> kept;
  // The rows of the second call are bet on given those of the first.
  const auto see = [&](Dependence& dependence, std::uint64_t seed, std::uint64_t other, const Related& related) {
    const auto first = sampler.drawn(seed);
    const auto second = first ? sampler.drawn(other) : std::nullopt;
    if (!second) return false;
    for (std::size_t n = 0; n < laws.rows(); ++n)
      if (const std::size_t like = related.row(n); like < laws.rows())
        dependence.see(like, (*first)[like], n, (*second)[n], sampler.random);
    if (!refused(bets, "stale-seed", sampler.outcome)) return true;
    sampler.outcome.finding->text += fmt::format("; the last two were {} and {}", seed, other);
    return false;
  };
  const double pairs = pairs_each * static_cast<double>(laws.rows());
  for (const Related& related : related_seeds(sampler.seeds(), sampler.chunk())) {
    Dependence& dependence = kept.emplace_back(related.of, 0, laws, pairs, bets);
    std::set<std::uint64_t> used;  // no draw is bet on twice
    for (int k = 0; k < pairs_each;) {
      const std::uint64_t seed = sampler.any_seed(), other = related.other(seed, sampler.random);
      if (other >= sampler.seeds() || other == seed || used.contains(seed) || used.contains(other)) continue;
      used.insert({seed, other});
      if (!see(dependence, seed, other, related)) return sampler.outcome;
      ++k;
    }
  }
  // Seeds by themselves: where a stream takes 0 for something else, and where fewer bits or a sign end.
  const Related ends{.of = "seed 0 and an end of the range"};
  Dependence& from_0 = kept.emplace_back(ends.of, 0, laws, pairs, bets);
  for (const std::uint64_t other :
       {std::uint64_t{1}, sampler.seeds() / 2 - 1, sampler.seeds() / 2, sampler.seeds() - 1})
    if (!see(from_0, 0, other, ends)) return sampler.outcome;
  sampler.outcome.note = note_of(expectation.of(), laws, bets);
  return sampler.outcome;
}

Outcome check(Expectation& expectation, const Subject& subject) {
  const std::string& variant = expectation.of().variant;
  if (variant != "small" && variant != "large" && variant != "pairs" && variant != "seeds")
    throw std::invalid_argument("variant: '" + variant + "' is unknown to law");
  if (expectation.law().slack.empty()) throw std::invalid_argument("dims: without rows there is nothing to draw");
  if (variant == "pairs") return check_pairs(expectation, subject);
  if (variant == "seeds") return check_seeds(expectation, subject);
  return check_rows(expectation, subject, variant == "small");
}

}  // namespace

Property law_property() {
  return {.name = self,
          .proves =
              "draws of each row's law, rows independent of each other, a fresh stream for each seed and the same "
              "tokens for the same one",
          .applies = [](const Driver& driver) { return static_cast<bool>(driver.law); },
          .plan = plan,
          .check = check,
          .patience = 40};
}

}  // namespace fractus
