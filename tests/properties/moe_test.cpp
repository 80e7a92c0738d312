// The fills of the mixture of experts: where they aim, and strong enough to show each known fault.
#include "contracts/moe.h"

#include <gtest/gtest.h>

#include <set>

#include "properties/driver.h"
#include "properties/moe_fill.h"
#include "tests/oracle/moe_judged.h"

namespace fractus::moe {

const Driver& driver();

namespace {

namespace mixture = oracle::moe;

Case case_of(const std::string& fill, const Dims& dims, std::uint64_t seed, DType dtype = DType::float32) {
  Case c{.kernel = "moe", .dtype = dtype, .dims = dims, .fill = fill, .seed = seed};
  c.cotangents = {"out", "lb"};
  return c;
}

mixture::Question question_of(const Case& c) {
  const Problem problem = fill(c);
  return {.dtype = c.dtype,
          .inputs = problem.inputs,
          .kappa = problem.scalars.at("kappa"),
          .temperature = problem.scalars.at("temperature"),
          .top_k = static_cast<std::size_t>(problem.scalars.at("top_k")),
          .cotangents = problem.cotangents};
}

Dims dims(std::int64_t T, std::int64_t d, std::int64_t E, std::int64_t F, std::int64_t r, std::int64_t top_k) {
  return {{"B", 1}, {"T", T}, {"d", d}, {"P", 8}, {"E", E}, {"F", F}, {"r", r}, {"top_k", top_k}};
}

// Small shapes of the plan's kinds.
const std::vector<Dims>& some_shapes() {
  static const std::vector<Dims> all{dims(6, 5, 8, 6, 2, 2), dims(6, 6, 4, 5, 0, 2), dims(4, 3, 5, 4, 3, 3),
                                     dims(8, 4, 6, 5, 0, 2)};
  return all;
}

struct Seen {
  std::string refused;
  mixture::Tally tally;
};

template <class T>
Seen seen(const std::string& name, std::uint64_t seed, DType dtype, const mixture::Form& form) {
  const mixture::Question question = question_of(case_of(name, some_shapes()[seed % 4], seed, dtype));
  Seen result;
  result.refused = mixture::refusal(question, mixture::answered<T>(question, form), result.tally);
  return result;
}

// Protects: no fill refuses a right form, nor leaves more than a few elements without a bound.
TEST(MoeFill, IsMostlyDecided) {
  for (const std::string& name : fill_names())
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const Seen narrow = seen<float>(name, seed, DType::float32, {}),
                 wide =
                     seen<double>(name, seed, DType::float64, {.sum = mixture::Sum::backwards, .last_of_ties = true});
      EXPECT_EQ(narrow.refused, "") << name << " seed " << seed;
      EXPECT_EQ(wide.refused, "") << name << " seed " << seed;
      EXPECT_LE(narrow.tally.undecidable + wide.tally.undecidable, (narrow.tally.elements + wide.tally.elements) / 10)
          << name << " seed " << seed;
    }
}

// Protects: each known fault is refused on some fill of the plan in float32 already, and gelu's exact form on the one
// that aims at it, by far.
TEST(MoeFill, ShowsEachKnownFault) {
  for (const mixture::Fault fault : mixture::faults) {
    std::set<std::string> fills;
    for (const std::string& name : fill_names())
      for (std::uint64_t seed = 0; seed < 8; ++seed)
        if (!seen<float>(name, seed, DType::float32, {.fault = fault}).refused.empty()) fills.insert(name);
    EXPECT_GE(fills.size(), 2U) << "fault " << static_cast<int>(fault);
    if (fault == mixture::Fault::gelu_erf) {
      EXPECT_TRUE(fills.contains("around_two"));
      EXPECT_GT(seen<float>("around_two", 1, DType::float32, {.fault = fault}).tally.ratio, 5);
    }
    if (fault == mixture::Fault::capacity_limit) {
      EXPECT_TRUE(fills.contains("one_route"));
    }
  }
}

// Protects: the fill that aims at choices hits: tokens in doubt and others, and out moves where a choice flips.
TEST(MoeFill, NearTiesAreInDoubt) {
  std::size_t in_doubt = 0, tokens = 0;
  double moves = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const oracle::Expected expected =
        mixture::expected(question_of(case_of("near_ties", dims(16, 4, 8, 5, 2, 2), seed)));
    in_doubt += expected.choices_in_doubt;
    tokens += 16;
    moves = std::max(moves, expected.flip_moves);
  }
  EXPECT_GT(in_doubt, tokens / 5);
  EXPECT_LT(in_doubt, tokens);
  EXPECT_GT(moves, 0.1);
}

// Protects: dense tensors where r is 0, those of low rank elsewhere; a case that is being shrunk below top_k experts is
// a case still.
TEST(MoeFill, GivesWhatTheExtentsAskFor) {
  for (const std::int64_t r : {0, 2}) {
    const Problem problem = fill(case_of("ordinary", dims(2, 3, 2, 4, r, 5), 1));
    EXPECT_EQ(problem.inputs.size(), contract().inputs.size());
    EXPECT_EQ(problem.scalars.at("top_k"), 2);
    for (std::size_t i = 0; i < problem.inputs.size(); ++i)
      EXPECT_EQ(problem.inputs[i].has_value(), belongs(contract().inputs[i], dims(2, 3, 2, 4, r, 5)));
  }
  EXPECT_THROW(fill(case_of("ordinary", dims(0, 3, 2, 4, 0, 1), 1)), std::invalid_argument);
  EXPECT_THROW(fill(case_of("nothing", dims(1, 3, 2, 4, 0, 1), 1)), std::invalid_argument);
}

}  // namespace
}  // namespace fractus::moe
