// The distributions: what the checks rest on. A fill that left the domain would refuse right kernels, one that missed
// its aim would accept wrong ones.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "contracts/linear_attention.h"
#include "properties/cases.h"
#include "properties/driver.h"
#include "properties/property.h"

namespace fractus {
namespace {

const Driver& driver() { return *find_driver("linear_attention"); }

Case some_case(const std::string& fill, DType dtype, Dims dims, std::uint64_t seed) {
  Case c = base_case(driver(), "gradients", dtype, std::move(dims), fill);
  c.cotangents = output_names(driver());
  c.seed = seed;
  return c;
}

rc::Gen<Case> any_case(const std::vector<std::string>& fills) {
  return random_case(driver(), {}, "gradients", fills, Backward::always);
}

// Protects: no false refusal. Inputs are in the contract's domain, exact in the dtype, and the definition is finite.
TEST(Fill, StaysInsideTheDomain) {
  EXPECT_TRUE(rc::check("fills stay inside the domain", [] {
    const Case c = *any_case(driver().fills);
    const Problem problem = driver().fill(c);
    for (const auto& input : problem.inputs) {
      if (!input) continue;
      for (double x : input->values) {
        RC_ASSERT(x == rounded(x, c.dtype));
        // A draw from a continuous law near 0 may fall below the least magnitude once in 2^27; nothing depends on it.
        RC_ASSERT(std::fabs(x) <= std::ldexp(1.0, linear_attention::domain_exponent));
      }
    }
    const oracle::Expected expected = driver().expected(problem, c.dtype, {});
    const double largest = c.dtype == DType::float32 ? 0x1p126 : 1e300;
    const auto finite = [&](const oracle::ExpectedTensor& tensor) {
      for (std::size_t i = 0; i < tensor.value.size(); ++i) RC_ASSERT(std::fabs(tensor.value[i]) < largest);
    };
    for (const auto& output : expected.outputs) finite(output);
    for (const auto& gradient : expected.gradients) finite(*gradient);
  }));
}

// Protects: replay and the plan's hash.
TEST(Fill, FollowsFromTheSeed) {
  for (const std::string& fill : driver().fills) {
    const Case c = some_case(fill, DType::float32, {{"G", 2}, {"T", 9}, {"D", 4}}, 3);
    Case other = c;
    ++other.seed;
    EXPECT_EQ(driver().fill(c).inputs, driver().fill(c).inputs) << fill;
    EXPECT_NE(driver().fill(c).inputs, driver().fill(other).inputs) << fill;
  }
}

// Protects: the choices property. Its rows lie on both sides of the cut, of both signs, and some cannot be decided.
TEST(Fill, NearCutStraddlesIt) {
  const Case c = some_case("near_cut", DType::float32, {{"G", 4}, {"T", 64}, {"D", 4}}, 5);
  const Problem problem = driver().fill(c);
  const auto expected = driver().expected(problem, c.dtype, {});
  int cut = 0, divided = 0;
  const oracle::ExpectedTensor& y = expected.outputs[0];
  for (std::size_t row = 0; row < 4 * 64; ++row) (y.tolerance[4 * row] == 0 ? cut : divided) += 1;
  EXPECT_GT(cut, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(expected.choices_in_doubt, 20u);
}

// Protects: the exact property. Nearly every draw is certified, and the free lattice fills the significand: a kernel
// that keeps S in one bit less would have to round.
TEST(Fill, LatticesAreCertified) {
  for (DType dtype : {DType::float32, DType::float64}) {
    int balanced = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      Problem problem = driver().fill(some_case("lattice", dtype, {{"G", 2}, {"T", 65}, {"D", 8}}, seed));
      problem.cotangents.assign(3, std::nullopt);
      const Exactness free = driver().exactness(problem, dtype);
      EXPECT_TRUE(free.outputs[1] && free.outputs[2]) << seed;
      EXPECT_GT(free.fullness, 0.25) << seed;

      const Exactness whole = driver().exactness(
          driver().fill(some_case("lattice_balanced", dtype, {{"G", 1}, {"T", 5}, {"D", 3}}, seed)), dtype);
      const bool all = whole.outputs[0] && whole.gradients[0] && whole.gradients[1] && whole.gradients[2] &&
                       whole.gradients[3] && whole.gradients[4];
      balanced += all ? 1 : 0;
    }
    EXPECT_GT(balanced, 40) << name(dtype);
  }
}

// Protects: the exact property's reach. Whatever tensor is wide, most draws certify a result with the last bit of the
// significand in use, so a form that keeps one bit less of it has to round.
TEST(Fill, WideLatticesFillTheSignificand) {
  const std::map<std::string, std::string> shows{{"wide_S0", "y S"}, {"wide_z0", "z"},    {"wide_v", "y S"},
                                                 {"wide_q", "y"},    {"wide_gy", "v S0"}, {"wide_gS", "v S0"},
                                                 {"wide_gz", "k z0"}};
  for (DType dtype : {DType::float32, DType::float64})
    for (const std::string& fill : driver().wide_fills) {
      std::map<std::string, int> full;  // draws, by tensor
      for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const Problem problem = driver().fill(some_case(fill, dtype, {{"G", 2}, {"T", 5}, {"D", 3}}, seed));
        for (const auto* list : {&problem.inputs, &problem.cotangents})
          for (const auto& array : *list)
            for (double x : array->values)
              ASSERT_TRUE(x == 0 || (std::fabs(x) >= 0x1p-30 && std::fabs(x) <= 0x1p30))
                  << fill << " " << array->name << " " << x;
        const Exactness exact = driver().exactness(problem, dtype);
        const auto count = [&](const std::string& name, const std::optional<std::vector<double>>& values) {
          const int bits = significand_bits(dtype);
          const auto uses_all = [bits](double x) {
            int exponent = 0;
            const double last =
                std::ldexp(std::frexp(x, &exponent), bits - 2);  // two bits of the width are left as room
            return x != 0 && last != std::trunc(last / 2) * 2;
          };
          if (values && std::any_of(values->begin(), values->end(), uses_all)) ++full[name];
        };
        for (std::size_t i = 0; i < 3; ++i) count(driver().contract->outputs[i].name, exact.outputs[i]);
        for (std::size_t i = 0; i < 5; ++i) count(driver().contract->inputs[i].name, exact.gradients[i]);
      }
      std::istringstream wanted(shows.at(fill));
      for (std::string tensor; wanted >> tensor;)
        EXPECT_GT(full[tensor], 20) << name(dtype) << " " << fill << " " << tensor;
    }
}

// Protects: the gradients of signed features. Both signs of den occur, and it is far below its terms.
TEST(Fill, CancellingDenominatorsHaveBothSigns) {
  const Problem problem = driver().fill(some_case("cancelling", DType::float64, {{"G", 3}, {"T", 40}, {"D", 5}}, 7));
  int positive = 0, negative = 0;
  for (std::size_t g = 0; g < 3; ++g) {
    std::vector<double> z(problem.inputs[4]->values.begin() + static_cast<std::ptrdiff_t>(5 * g),
                          problem.inputs[4]->values.begin() + static_cast<std::ptrdiff_t>(5 * g + 5));
    for (std::size_t t = 0; t < 40; ++t) {
      double den = 0, terms = 0;
      for (std::size_t p = 0; p < 5; ++p) {
        z[p] += problem.inputs[1]->values[(g * 40 + t) * 5 + p];
        const double term = problem.inputs[0]->values[(g * 40 + t) * 5 + p] * z[p];
        den += term;
        terms += std::fabs(term);
      }
      EXPECT_LT(std::fabs(den), 0.2 * terms);
      (den > 0 ? positive : negative) += 1;
    }
  }
  EXPECT_GT(positive, 30);
  EXPECT_GT(negative, 30);
}

// Protects: a clear error where a fixture was edited.
TEST(Fill, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(driver().fill(some_case("no_such_fill", DType::float32, {{"G", 1}, {"T", 1}, {"D", 1}}, 0)),
               std::invalid_argument);
  EXPECT_THROW(driver().fill(some_case("feature", DType::float32, {{"G", 1}, {"T", -1}, {"D", 1}}, 0)),
               std::invalid_argument);
  EXPECT_THROW(driver().fill(some_case("feature", DType::float32, {{"G", 1}, {"D", 1}}, 0)), std::invalid_argument);
  EXPECT_THROW(driver().fill(some_case("feature", DType::float32, {{"G", 1}, {"T", 1}, {"D", 0}}, 0)),
               std::invalid_argument);
}

}  // namespace
}  // namespace fractus
