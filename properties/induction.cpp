#include "properties/induction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "properties/over_field.h"

namespace fractus {
namespace {

using Parts = std::vector<Folded>;

bool same(const Parts& parts, std::size_t a, std::size_t b, std::size_t period) {
  return std::equal(parts.begin() + static_cast<std::ptrdiff_t>(a),
                    parts.begin() + static_cast<std::ptrdiff_t>(a + period),
                    parts.begin() + static_cast<std::ptrdiff_t>(b));
}

// All runs of two or more equal neighbours of `period` parts, from the left, each as long as it is.
bool fold_once(Parts& parts, std::size_t period) {
  Parts result;
  bool any = false;
  for (std::size_t i = 0; i < parts.size();) {
    std::size_t count = 1;
    while (i + (count + 1) * period <= parts.size() && same(parts, i, i + count * period, period)) ++count;
    if (count == 1) {
      result.push_back(std::move(parts[i++]));
      continue;
    }
    any = true;
    Folded fold;
    const auto first = parts.begin() + static_cast<std::ptrdiff_t>(i);
    fold.body.assign(first, first + static_cast<std::ptrdiff_t>(period));
    fold.count = static_cast<std::int64_t>(count);
    result.push_back(std::move(fold));
    i += count * period;
  }
  parts = std::move(result);
  return any;
}

// Of three numbers at lengths of equal distances.
bool affine(std::int64_t a, std::int64_t b, std::int64_t c) { return b - a == c - b; }

bool alike(const Parts& a, const Parts& b, const Parts& c);

bool alike(const Step& a, const Step& b, const Step& c) {
  if (a.operation != b.operation || b.operation != c.operation) return false;
  if (a.shapes.size() != b.shapes.size() || b.shapes.size() != c.shapes.size()) return false;
  for (std::size_t s = 0; s < a.shapes.size(); ++s) {
    if (a.shapes[s].size() != b.shapes[s].size() || b.shapes[s].size() != c.shapes[s].size()) return false;
    for (std::size_t d = 0; d < a.shapes[s].size(); ++d)
      if (!affine(a.shapes[s][d], b.shapes[s][d], c.shapes[s][d])) return false;
  }
  return true;
}

bool alike(const Folded& a, const Folded& b, const Folded& c) {
  if (a.body.empty() != b.body.empty() || b.body.empty() != c.body.empty()) return false;
  if (a.body.empty()) return alike(a.step, b.step, c.step);
  return affine(a.count, b.count, c.count) && alike(a.body, b.body, c.body);
}

bool alike(const Parts& a, const Parts& b, const Parts& c) {
  if (a.size() != b.size() || b.size() != c.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!alike(a[i], b[i], c[i])) return false;
  return true;
}

}  // namespace

std::vector<Folded> folded(const std::vector<Step>& trace) {
  // Short periods first: what is folded inside a block is folded in each, and blocks stay equal. A trace of ten
  // thousand steps takes some hundred million comparisons of the first part, which mostly differ.
  Parts parts;
  for (const Step& step : trace) parts.push_back({.step = step});
  for (std::size_t period = 1; 2 * period <= parts.size(); ++period)
    if (fold_once(parts, period)) period = 0;  // what is folded may be equal neighbours now
  return parts;
}

bool alike(const std::vector<std::vector<Step>>& traces) {
  if (traces.size() < 3) return false;
  std::vector<Parts> parts;
  for (const auto& trace : traces) {
    if (trace.empty()) return false;
    parts.push_back(folded(trace));
  }
  for (std::size_t i = 0; i + 2 < parts.size(); ++i)
    if (!alike(parts[i], parts[i + 1], parts[i + 2])) return false;
  return true;
}

Outcome check_induction(Expectation& expectation, const Subject& subject) {
  const Driver& driver = expectation.driver();
  const Case& c = expectation.of();
  // The case's own length is that of two blocks.
  const std::int64_t block = c.dims.at(driver.sequence_symbol) / 2;
  std::vector<std::int64_t> remainders{0};
  if (block > 1) remainders.push_back(1);
  if (block > 2) remainders.push_back(block - 1);
  Outcome outcome;
  std::vector<std::int64_t> holding;
  bool from_three = false;
  for (const std::int64_t remainder : remainders) {
    std::vector<std::vector<Step>> traces;
    const auto trace = [&](std::int64_t blocks) {
      Case longer = c;
      longer.dims[driver.sequence_symbol] = blocks * block + remainder;
      const Expectation its(driver, longer, 1);
      FieldCall call = field_call(its, subject, 0);
      call.traced = true;
      FieldAnswer answer = subject.call_over_field(call);
      add_remarks(outcome.remarks, answer.remarks);
      traces.push_back(std::move(answer.trace));
      return answer.status == FieldStatus::ok;
    };
    // What keeps a call from an answer is said where identity itself is judged; here it ends the claim.
    for (const std::int64_t blocks : {2, 3, 4})
      if (!trace(blocks)) return outcome;
    // Where the last step of a block is that of the next one's beginning, two blocks do not show a period yet.
    if (!alike(traces)) {
      if (!trace(5)) return outcome;
      traces.erase(traces.begin());
      if (!alike(traces)) continue;
      from_three = true;
    }
    holding.push_back(remainder);
  }
  if (holding.empty()) {
    outcome.note = fmt::format(
        "no claim beyond these lengths: its operations at 2, 3, 4 and 5 blocks of {} are not those of one program",
        block);
    return outcome;
  }
  outcome.claim = fmt::format(
      "over {}, for every {} = n*{} + r, n at least 1, r in {{{}}}, if the program treats all blocks alike; its "
      "operations at {} blocks are those of one program",
      field_name(field_bits(c.dtype)), driver.sequence_symbol, block, fmt::join(holding, ", "),
      from_three ? "3, 4 and 5" : "2, 3 and 4");
  return outcome;
}

}  // namespace fractus
