// RapidCheck under GoogleTest. Debian does not package rapidcheck/gtest.h's CMake target, and its checkGTest takes no
// number of draws; this is the same in ten lines. A property is a callable that returns what is wrong, or an empty
// string.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <sstream>

namespace fractus {

// The seed is fixed, so a red run is red again; RC_PARAMS="seed=..." draws others.
template <class Property>
testing::AssertionResult holds(int draws, Property&& property) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  if (std::getenv("RC_PARAMS") == nullptr) params.seed = 20260;
  params.maxSuccess = draws;
  const rc::detail::TestMetadata metadata{testing::UnitTest::GetInstance()->current_test_info()->name(), ""};
  const auto result = rc::detail::checkTestable(std::forward<Property>(property), metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return testing::AssertionSuccess();
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  return testing::AssertionFailure() << text.str();
}

}  // namespace fractus
