// What the property law bets on: e-processes together with the words that a person is told of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "oracle/law.h"
#include "properties/cells.h"
#include "properties/sequential.h"

namespace fractus {

// A run's share of false refusals is divided among the e-processes of the most cases that a plan may have, each with
// the most that a check may keep. Both hold by an error of our own (`plan` and Bets::add), so the level holds for a
// case that is replayed or shrunk as well.
inline constexpr std::int64_t most_law_cases = 64, most_bets = 64;
inline constexpr Level run_level{1e-6, most_law_cases* most_bets};

// Rows that a form may treat alike: a class is judged by the draws of all its rows.
struct Rows {
  std::string name;
  std::vector<std::size_t> members;  // ascending
};

// All; where there are chunks also the first and the last rows of chunks, and those of a short last one. Up to 8 rows
// each row by itself too.
std::vector<Rows> row_classes(std::size_t rows, std::size_t chunk);

// The rows' laws, as cells need them.
class Laws {
 public:
  explicit Laws(const oracle::Law& law);

  std::size_t rows() const { return law_.slack.size(); }
  std::size_t tokens() const { return tokens_; }
  std::span<const double> row(std::size_t n) const { return {law_.probability.data() + n * tokens_, tokens_}; }
  double slack(std::size_t n) const { return law_.slack[n]; }
  // Where all rows have the law of row 0: a slack with which it holds for each of them.
  std::optional<double> common_slack() const { return common_slack_; }
  std::int64_t place(std::size_t n, Order order, std::size_t token, double uniform, std::int64_t cells);

 private:
  const oracle::Law& law_;
  std::size_t tokens_;
  std::optional<double> common_slack_;
  std::map<Order, std::vector<std::vector<double>>> before_;  // by row; empty where that would be large
};

// An e-process, what it is of, and what it has seen.
class Bet {
 public:
  // `first_row`: for the finding. `share`: the null's probability of each cell; empty where it differs from draw to
  // draw (repeats).
  Bet(std::string of, std::size_t first_row, std::string cell_words, std::vector<double> share, std::int64_t cells,
      std::int64_t contexts);

  void observe(std::int64_t cell, double log_upper, std::int64_t context = 0);
  void observe(bool again, const Repeats& upper);

  bool refuted() const { return run_level.refutes(process_); }
  double log_largest() const { return process_.log_largest(); }
  const std::string& of() const { return of_; }
  std::size_t first_row() const { return first_row_; }
  std::int64_t draws() const { return process_.draws(); }
  // The smallest total variation in its cells that would have shown (smallest_shown); 1 for repeats, which claim none.
  double shown(double slack) const;
  // One sentence: the rows, the cell that is furthest off, the shares, the e-value.
  std::string text() const;

 private:
  std::string of_;
  std::size_t first_row_;
  std::string cell_words_;
  std::vector<double> share_;
  std::int64_t cells_, contexts_;
  EProcess process_;
  std::vector<std::int64_t> count_;  // by context, then cell
  std::vector<double> expected_;     // of repeats, by cell
};

class Bets {
 public:
  // Throws std::logic_error beyond most_bets.
  Bet& add(Bet bet);
  // Of those that refuse, the one that does most; null where none does.
  const Bet* refuted() const;
  // "all rows 6000 draws, 0.031; ...": by what a bet is of, the draws and the smallest total variation shown.
  std::string note(double slack) const;

 private:
  std::vector<std::unique_ptr<Bet>> bets_;
};

// Words for a bet's cells.
std::string words(Order order, const std::string& cell);

}  // namespace fractus
