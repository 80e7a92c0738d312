#include "properties/property.h"

#include "properties/all.h"
#include "properties/slices.h"

namespace fractus {

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

const oracle::Expected& Expectation::either() {
  std::call_once(either_once_, [this] {
    either_ = std::make_shared<oracle::Expected>(driver_.expected(problem_, case_.dtype, nullptr, threads_));
  });
  return *either_;
}

std::shared_ptr<const oracle::Expected> Expectation::expected(const std::vector<Array>& answered) {
  if (either().choices_in_doubt == 0) return either_;
  return std::make_shared<oracle::Expected>(driver_.expected(problem_, case_.dtype, &answered, threads_));
}

const Exactness& Expectation::exactness() {
  std::call_once(exactness_once_, [this] { exactness_ = driver_.exactness(problem_, case_.dtype); });
  return *exactness_;
}

const std::vector<Property>& properties() {
  // In the order in which they run: those that aim come before those that search, so that most known-wrong forms are
  // caught, and cost nothing more, before the long ones begin.
  static const std::vector<Property> all{contract_property(), exact_property(),    choices_property(),
                                         repeat_property(),   rounding_property(), gradients_property(),
                                         carry_property(),    memory_property()};
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
