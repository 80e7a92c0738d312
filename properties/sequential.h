// Tests of draws against a known law that hold at every stopping time: a right sampler is refused with at most the
// stated probability however long one looks, and whenever one stops.
//
// An e-process is a product of bets against the null, each of expectation at most 1 given what came before. By Ville's
// inequality (Ville 1939; Ramdas, Gruenwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe anytime-valid
// inference") it ever reaches 1/alpha with probability at most alpha, so one that does is a refusal at level alpha.
//
// The randomness of these statements is that of the seeds and of what they are turned into: a plan draws its seeds, and
// a right kernel's stream is taken for ideal.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "oracle/law.h"

namespace fractus {

// A draw of a token below this refuses by itself. A right kernel's own rounding is bounded relatively above it and by
// its double below it, so n draws of V tokens do this with probability at most n V 2^-99.
using oracle::least_probability;

// The bets of Krichevsky and Trofimov (1981) on which cell comes next: (count + 1/2) / (draws + cells/2), the
// predictions of the mixture of all categorical laws by Dirichlet(1/2, ..., 1/2). They divide by the null's probability
// of the cell that came, and multiply over the draws.
//
// Contexts are for dependence: bets on a draw that learn from those draws only whose context (the cell of an earlier
// draw) was the same. Against the joint cells of the two this saves the bet on the first, and one draw may be the
// context of the next, and itself be bet on: pairs may overlap.
class EProcess {
 public:
  EProcess(std::int64_t cells, std::int64_t contexts = 1);

  // The next draw fell into `cell`, whose probability under any right kernel, given the context and all that this
  // process has seen, has a logarithm of at most `log_upper`. Then sum_x right(x) bet(x) / upper(x) <= sum_x bet(x) =
  // 1, so the product stays a supermartingale; that is also why an upper bound p exp(slack) does for a law that is
  // known to within exp(+-slack) only. No draw may be bet on twice by one process. -infinity: the cell is impossible,
  // and the process infinite. Throws std::out_of_range for a cell or a context that it does not have.
  void observe(std::int64_t cell, double log_upper, std::int64_t context = 0);

  // Of the product now and of the largest that it ever was; lower bounds, for the roundings of the sum are taken off.
  double log_value() const { return log_value_ - rounding_; }
  double log_largest() const { return log_largest_; }
  std::int64_t draws() const { return draws_; }

 private:
  std::int64_t cells_;
  std::vector<std::int64_t> count_;  // by context, then cell
  std::vector<std::int64_t> total_;  // by context
  std::int64_t draws_ = 0;
  double log_value_ = 0, rounding_ = 0, log_largest_ = 0;
};

// The level of a whole run. Each of its e-processes, whose number the plan fixes, gets an equal share, and so do the
// draws below least_probability: by the union bound a right kernel is refused with probability at most `total`,
// whatever the processes have to do with one another.
struct Level {
  double total = 1e-6;
  std::int64_t processes = 1;

  // log(1/alpha) of one process.
  double log_threshold() const;
  bool refutes(const EProcess& process) const { return process.log_largest() >= log_threshold(); }
};

// The most by which the mixture's likelihood of any `draws` draws can fall short of the likeliest categorical law's, as
// a logarithm. `draws` need not be whole.
double regret(double draws, std::int64_t cells);

// The smallest total variation from the null that `draws` draws would have shown with probability 1 - miss at least;
// 1 or more: none is sure to have shown.
//
// What is claimed: let every draw's null be the one law p, known to within exp(+-slack), and let each draw come from
// q(. | context) whatever its context. Where the total variation of q(. | context) and p, averaged over the draws,
// is tau or more, the process ends beyond `log_threshold` but for a chance of `miss`. It is a claim about the cells: a
// departure that keeps the mass of every cell is not seen.
double smallest_shown(std::int64_t draws, std::int64_t cells, std::int64_t contexts, double slack, double log_threshold,
                      double miss = 0.01);

}  // namespace fractus
