#include "properties/rational.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "properties/random.h"

namespace fractus::rational {

const std::vector<std::string>& fill_names() {
  static const std::vector<std::string> names{"signed", "positive", "magnitudes"};
  return names;
}

Problem fill(const Contract& contract, const Case& c, const Whole& whole) {
  if (!contains(fill_names(), c.fill))
    throw std::invalid_argument(fmt::format("field 'fill': '{}' is no fill of {}", c.fill, contract.kernel));
  for (const std::string& symbol : contract.dim_symbols)
    if (const auto found = c.dims.find(symbol); found == c.dims.end() || found->second < 1)
      throw std::invalid_argument(fmt::format("field 'dims': wanted {} of at least 1", symbol));
  Random random(c.seed);
  const auto next = [&] {
    const double x = random.normal();
    if (c.fill == "positive") return std::fabs(x);
    return c.fill == "magnitudes" ? std::ldexp(x, static_cast<int>(random.integer(-12, 12))) : x;
  };
  const auto drawn = [&](const TensorSpec& spec) {
    Array array = zeros(spec.name, spec.dtype.value_or(c.dtype), shape_of(spec, c.dims));
    if (spec.dtype)
      array.values = whole(array.shape, random.bits());
    else
      for (double& x : array.values) x = rounded(next(), c.dtype);
    return array;
  };
  Problem problem;
  for (const TensorSpec& spec : contract.inputs) {
    Array array = drawn(spec);  // drawn where it is absent too, so that the others keep their values
    problem.inputs.push_back(contains(c.absent, spec.name) ? std::nullopt : std::optional(std::move(array)));
  }
  for (const TensorSpec& spec : contract.outputs) {
    Array array = drawn(spec);
    problem.cotangents.push_back(contains(c.cotangents, spec.name) ? std::optional(std::move(array)) : std::nullopt);
  }
  return problem;
}

oracle::FloatCall float_call(const Contract& contract, const Problem& problem, DType dtype) {
  return {&contract, dtype, problem.inputs, problem.cotangents};
}

}  // namespace fractus::rational
