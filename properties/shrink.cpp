#include "properties/shrink.h"

#include <algorithm>
#include <numeric>

namespace fractus {
namespace {

using Cases = rc::Seq<Case>;

Cases one(Case c) { return rc::seq::just(std::move(c)); }

Cases with_extent(const Case& c, const std::string& symbol) {
  const std::int64_t extent = c.dims.at(symbol);
  if (extent <= 1) return {};
  return rc::seq::map(rc::shrink::towards<std::int64_t>(extent, 1), [c, symbol](std::int64_t smaller) {
    Case next = c;
    next.dims[symbol] = smaller;
    return next;
  });
}

// The sequence is as long as its pieces: dropping or shortening one shortens the sequence.
Cases with_pieces(const Case& c, const std::string& symbol) {
  const auto as_case = [c, symbol](std::vector<std::int64_t> pieces) {
    Case next = c;
    next.dims[symbol] = std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0});
    next.pieces = std::move(pieces);
    return next;
  };
  // A split that has no empty piece may need that.
  const bool none_empty = std::find(c.pieces.begin(), c.pieces.end(), 0) == c.pieces.end();
  const auto usable = [none_empty](const std::vector<std::int64_t>& pieces) {
    if (none_empty && std::find(pieces.begin(), pieces.end(), 0) != pieces.end()) return false;
    return std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0}) > 0;
  };
  const auto shorter = [](std::int64_t piece) { return rc::shrink::towards<std::int64_t>(piece, 0); };
  return rc::seq::map(
      rc::seq::filter(rc::seq::concat(rc::shrink::removeChunks(c.pieces), rc::shrink::eachElement(c.pieces, shorter)),
                      usable),
      as_case);
}

Cases without(const Case& c, std::vector<std::string> Case::*list, std::size_t smallest) {
  if ((c.*list).size() <= smallest) return {};
  return rc::seq::map(rc::seq::filter(rc::shrink::removeChunks(c.*list),
                                      [smallest](const auto& names) { return names.size() >= smallest; }),
                      [c, list](std::vector<std::string> names) {
                        Case next = c;
                        next.*list = std::move(names);
                        return next;
                      });
}

Cases absent(const Driver& driver, const Case& c) {
  Cases all;
  for (const TensorSpec& spec : driver.contract->inputs)
    if (spec.optional && !contains(c.absent, spec.name)) {
      Case next = c;
      next.absent.push_back(spec.name);
      all = rc::seq::concat(std::move(all), one(std::move(next)));
    }
  return all;
}

Cases with_parameter(const Case& c) {
  Cases all;
  for (const auto& [parameter, value] : c.settings)
    all = rc::seq::concat(std::move(all), rc::seq::map(rc::shrink::towards<std::int64_t>(value, 1),
                                                       [c, name = parameter](std::int64_t smaller) {
                                                         Case next = c;
                                                         next.settings[name] = smaller;
                                                         return next;
                                                       }));
  return all;
}

Cases plainer(const Driver& driver, const Case& c) {
  Cases all;
  if (c.layouts.size() > 1) {
    Case next = c;
    next.layouts.clear();
    all = one(std::move(next));
  }
  for (const auto& [tensor, layout] : c.layouts) {
    Case next = c;
    next.layouts.erase(tensor);
    all = rc::seq::concat(std::move(all), one(std::move(next)));
  }
  if (contains(driver.smooth_fills, c.fill) && c.fill != driver.smooth_fills.front()) {
    Case next = c;
    next.fill = driver.smooth_fills.front();
    all = rc::seq::concat(std::move(all), one(std::move(next)));
  }
  return all;
}

}  // namespace

rc::Seq<Case> simpler(const Driver& driver, const Case& c) {
  Cases all;
  for (const std::string& symbol : driver.contract->dim_symbols) {
    const bool split = symbol == driver.sequence_symbol && !c.pieces.empty();
    all = rc::seq::concat(std::move(all), split ? with_pieces(c, symbol) : with_extent(c, symbol));
  }
  return rc::seq::concat(std::move(all), with_parameter(c), absent(driver, c), without(c, &Case::cotangents, 1),
                         without(c, &Case::frozen, 0), plainer(driver, c));
}

Shrunk shrink(const Driver& driver, const Case& failing, const Finding& finding,
              const std::function<std::optional<Finding>(const Case&)>& finding_of, int patience) {
  Shrunk result{failing, finding};
  const auto tree_of = [&driver](const Case& c) {
    return rc::shrinkable::shrinkRecur(c, [&driver](const Case& node) { return simpler(driver, node); });
  };
  // Smaller extents mean other values, and a fault that only some values show would stop the descent by bad luck: each
  // step is tried with a few seeds.
  constexpr std::uint64_t seeds = 4;
  const auto fails_alike = [&](Case c) {
    for (std::uint64_t k = 0; k < seeds && result.attempts < patience; ++k, ++c.seed) {
      ++result.attempts;
      const auto found = finding_of(c);
      if (!found || found->kind != finding.kind || found->tensor != finding.tensor) continue;
      result.smallest = c;
      result.finding = *found;
      ++result.steps;
      return true;
    }
    return false;
  };
  for (bool moved = true; moved;) {
    auto branches = tree_of(result.smallest).shrinks();
    moved = false;
    for (auto branch = branches.next(); branch && !moved && result.attempts < patience; branch = branches.next())
      moved = fails_alike(branch->value());
  }
  return result;
}

}  // namespace fractus
