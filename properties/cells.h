// Cells: what an e-process is told of a draw. Fixed by the law and the plan, never by the draws.
//
// Rows of one law share a Partition of the tokens. Rows of different laws share Places: a token's interval of the
// cumulative law, at a uniform point of it, lies in each of K equal cells with probability 1/K, whatever the law.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fractus {

struct Partition {
  std::vector<std::int32_t> cell_of;  // by token
  std::int64_t cells = 0;
};

Partition by_token(std::size_t tokens);
// At most `cells` of about equal mass, likelier tokens in lower cells: a changed temperature, a cut tail.
Partition by_rank(std::span<const double> law, std::int64_t cells);
// At most `cells`: the first and the last token alone, and equal ranges of index between them: a lost block or tail.
// At least 3.
Partition by_index(std::size_t tokens, std::int64_t cells);
// Without regard to order: what the others' cells average out.
Partition by_hash(std::size_t tokens, std::int64_t cells, std::uint64_t salt);

// For EProcess::observe: the largest log-probability, by cell, that a kernel has whose law is `law` to within
// exp(+-slack) where that is least_probability or more. Tokens below that count nothing: a draw of one is a refusal by
// itself and no bet, which is a factor of 0 on a supermartingale.
std::vector<double> log_upper(const Partition& partition, std::span<const double> law, double slack);

// The order in which a law is accumulated, with the same aims as the partitions above.
enum class Order { rank, index, hash };

// What lies before a token in that order, O(V), and before each, O(V log V): where a row is drawn from many times.
double before(std::span<const double> law, Order order, std::uint64_t salt, std::size_t token);
std::vector<double> accumulated(std::span<const double> law, Order order, std::uint64_t salt);

// The randomized probability integral transform (Rueschendorf 1981): of `cells` equal cells of [0, 1) that in which
// `uniform`, a number in [0, 1) of our own drawing, puts the token that has `before` before it.
std::int64_t place(double before, double probability, double uniform, std::int64_t cells);
// Log-probability of each place, at most.
double place_log_upper(std::size_t tokens, std::int64_t cells, double slack);

// Whether a draw repeats `token`: the largest log-probabilities of no and of yes. Cells of their own for same noise.
struct Repeats {
  double no, yes;
};
Repeats seen_log_upper(std::size_t tokens, double mass, double slack);  // the same for a set of tokens, of this mass
Repeats repeats_log_upper(std::span<const double> law, std::size_t token, double slack);

}  // namespace fractus
