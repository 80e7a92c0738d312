// Cases as data: what a plan hashes and a fixture replays has to come back as it went.
#include "properties/case.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>

#include "properties/property.h"

namespace fractus {
namespace {

rc::Gen<Case> any_case() {
  return rc::gen::exec([] {
    const Driver& driver = *find_driver("linear_attention");
    const PlanSettings settings;
    const Property& property = **rc::gen::elementOf(std::vector<const Property*>{
        find_property("contract"), find_property("carry"), find_property("repeat"), find_property("gradients")});
    return *property.random(driver, settings);
  });
}

// Protects: replay. A field that is lost on the way to the file would replay another case.
TEST(Case, SurvivesJson) {
  EXPECT_TRUE(rc::check("a case survives JSON", [] {
    const Case c = *any_case();
    RC_ASSERT(case_from_json(nlohmann::json::parse(nlohmann::json(c).dump())) == c);
  }));
}

// Protects: a hand-edited fixture. Each missing field is named.
TEST(Case, NamesTheFieldThatIsMissing) {
  const Case c = drawn(any_case(), 1, 1)[0];
  const nlohmann::json whole = c;
  for (const auto& [name, value] : whole.items()) {
    nlohmann::json broken = whole;
    broken.erase(name);
    try {
      case_from_json(broken);
      FAIL() << name << " may be missing";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("'" + name + "'"), std::string::npos) << error.what();
    }
  }
}

// Protects: the plan's hash. The same seed draws the same cases, another one others.
TEST(Case, DrawsFollowFromTheSeed) {
  const Driver& driver = *find_driver("linear_attention");
  for (const Property& property : properties()) {
    if (!property.random) continue;
    const auto generator = property.random(driver, {});
    EXPECT_EQ(drawn(generator, 5, 20), drawn(generator, 5, 20)) << property.name;
    EXPECT_NE(drawn(generator, 5, 20), drawn(generator, 6, 20)) << property.name;
  }
}

}  // namespace
}  // namespace fractus
