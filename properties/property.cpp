#include "properties/property.h"

#include <cmath>

#include "properties/all.h"
#include "properties/slices.h"

namespace fractus {

namespace {

// The gradient of the rows is added into that of the matrix they were taken from, in any order.
void join_tied(const Tied& tied, DType dtype, oracle::Expected& expected) {
  const oracle::ExpectedTensor rows = std::move(*expected.gradients.at(tied.input));
  expected.gradients[tied.input].reset();
  oracle::ExpectedTensor& whole = *expected.gradients.at(tied.from);
  const std::size_t width = tied.rows.empty() ? 0 : rows.value.size() / tied.rows.size();
  std::vector<double> magnitude, terms(whole.value.size(), 1);
  for (double x : whole.value) magnitude.push_back(std::fabs(x));
  for (std::size_t r = 0; r < tied.rows.size(); ++r)
    for (std::size_t k = 0; k < width; ++k) {
      const std::size_t from = r * width + k, to = static_cast<std::size_t>(tied.rows[r]) * width + k;
      const double sum = whole.value[to] + rows.value[from];
      if (!whole.remainder.empty()) {  // what the sum of the two doubles lost (Knuth, TAOCP 2, 4.2.2, theorem B)
        const double other = sum - whole.value[to];
        whole.remainder[to] += (whole.value[to] - (sum - other)) + (rows.value[from] - other) + rows.remainder[from];
      }
      whole.value[to] = sum;
      whole.tolerance[to] += rows.tolerance[from];
      magnitude[to] += std::fabs(rows.value[from]);
      ++terms[to];
    }
  // Each addition rounds once, and no partial sum is larger than the magnitudes and their own tolerance together.
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (terms[i] > 1) {
      const double nu = (terms[i] + 1) * unit_roundoff(dtype);
      whole.tolerance[i] += nu / (1 - nu) * (magnitude[i] + whole.tolerance[i]);
    }
}

}  // namespace

Problem problem_of(const Driver& driver, const Case& c) {
  Problem problem = driver.fill(c);
  const auto fit = [&](std::optional<Array>& array, const std::string& tensor) {
    if (!array) return;
    const std::vector<bool> expanded = expanded_dims(layout_of(c.layouts, tensor), array->shape.size());
    for (std::size_t d = 0; d < expanded.size(); ++d)
      if (expanded[d]) repeat_first(*array, d);
  };
  for (std::size_t i = 0; i < problem.inputs.size(); ++i) {
    const std::string& name = driver.contract->inputs[i].name;
    fit(problem.inputs[i], name);
    if (!problem.inputs[i] || layout_of(c.layouts, name) != Layout::shared) continue;
    if (const auto partner = shared_with(problem.inputs, i))
      problem.inputs[i]->values = problem.inputs[*partner]->values;
  }
  for (std::size_t i = 0; i < problem.cotangents.size(); ++i)
    fit(problem.cotangents[i], "d" + driver.contract->outputs[i].name);
  return problem;
}

Expectation::Expectation(const Driver& driver, const Case& c, int threads)
    : Expectation(driver, c, problem_of(driver, c), threads) {}

Expectation::Expectation(const Driver& driver, const Case& c, Problem problem, int threads)
    : driver_(driver), case_(c), threads_(threads), problem_(std::move(problem)) {}

void Expectation::tie(Tied tied) { tied_ = std::move(tied); }

std::shared_ptr<const oracle::Expected> Expectation::evaluated(const Judged& judged) const {
  // Starting threads takes longer than what most of a plan's calls would gain by them.
  constexpr std::size_t worth_threads = 1 << 18;  // elements of input
  Judged its = judged;
  if (value_count(problem_.inputs) < worth_threads) its.threads = 1;
  oracle::Expected expected = driver_.expected(problem_, case_.dtype, its);
  if (tied_ && !expected.gradients.empty()) join_tied(*tied_, case_.dtype, expected);
  return std::make_shared<const oracle::Expected>(std::move(expected));
}

std::shared_ptr<const oracle::Expected> Expectation::either(std::int64_t add_depth) {
  const std::scoped_lock lock(either_mutex_);
  auto& found = either_[add_depth];
  if (!found) found = evaluated({.add_depth = add_depth, .threads = threads_});
  return found;
}

std::future<void> Expectation::begin() {
  constexpr std::size_t most = 1 << 20;  // elements of input; a larger evaluation takes all threads, and much memory
  if (threads_ < 2 || !driver_.expected || driver_.choices_shown || driver_.depth_declared ||
      value_count(problem_.inputs) > most || begun_.exchange(true))
    return {};
  return std::async(std::launch::async, [this] { either(); });  // what it throws is thrown again where it is asked for
}

std::shared_ptr<const oracle::Expected> Expectation::expected(const Answer& answer) {
  if (!driver_.choices_shown)
    if (auto found = either(answer.add_depth); found->choices_in_doubt == 0) return found;
  return evaluated({.outputs = &answer.outputs, .add_depth = answer.add_depth, .threads = threads_});
}

const Exactness& Expectation::exactness() {
  std::call_once(exactness_once_, [this] { exactness_ = driver_.exactness(problem_, case_.dtype); });
  return *exactness_;
}

const oracle::Law& Expectation::law() {
  std::call_once(law_once_, [this] { law_ = driver_.law(problem_, case_.dtype); });
  return *law_;
}

const std::vector<Property>& properties() {
  // In the order in which they run: those that aim come before those that search, so that most known-wrong forms are
  // caught, and cost nothing more, before the long ones begin.
  static const std::vector<Property> all{contract_property(), domain_property(),    exact_property(),
                                         choices_property(),  repeat_property(),    recompute_property(),
                                         rounding_property(), gradients_property(), carry_property(),
                                         memory_property(),   law_property(),       identity_property()};
  return all;
}

const Property* find_property(std::string_view name) {
  for (const Property& property : properties())
    if (property.name == name) return &property;
  return nullptr;
}

std::vector<Case> drawn(const rc::Gen<Case>& generator, std::uint64_t seed, int count) {
  std::vector<Case> cases;
  rc::Random random(seed);
  for (int i = 0; i < count; ++i) cases.push_back(generator(random.split(), rc::kNominalSize).value());
  return cases;
}

}  // namespace fractus
