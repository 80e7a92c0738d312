// Protects: the judge's other thread works in order, holds the judge back when it is too far behind, and loses no
// error.
#include "harness/trailing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

using namespace fractus;
using namespace std::chrono_literals;

TEST(Trailing, DoesAllInOrder) {
  std::vector<int> done;
  Trailing trailing(3);
  for (int i = 0; i < 50; ++i) trailing.add(1, [&done, i] { done.push_back(i); });
  trailing.join();
  ASSERT_EQ(done.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
}

TEST(Trailing, HoldsBackWhoIsTooFarAhead) {
  std::promise<void> go;
  std::atomic<bool> through = false;
  Trailing trailing(10);
  trailing.add(10, [gone = go.get_future().share()] { gone.wait(); });
  std::thread ahead([&] {
    trailing.add(1, [] {});
    through = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(through);
  go.set_value();
  ahead.join();
  trailing.join();
}

TEST(Trailing, LetsGoOfWhatAWorkHeld) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  std::promise<void> asked;
  Trailing trailing(10);
  trailing.add(1, [held = std::move(held)] {});
  trailing.add(1, [&] {
    EXPECT_TRUE(seen.expired());
    asked.set_value();
  });
  trailing.join();
  asked.get_future().get();
}

TEST(Trailing, ThrowsWhatAWorkThrewAndBeginsNoOther) {
  bool other = false;
  Trailing trailing(10);
  trailing.add(1, [] { throw std::runtime_error("lost"); });
  trailing.add(1, [&] { other = true; });
  EXPECT_THROW(trailing.join(), std::runtime_error);
  EXPECT_FALSE(other);
}

TEST(Trailing, DropsWhatHasNotBegun) {
  std::promise<void> began;
  std::promise<void> go;
  std::atomic<int> done = 0;
  std::thread later;
  {
    Trailing trailing(10);
    trailing.add(1, [&, gone = go.get_future().share()] {
      began.set_value();
      gone.wait();
      ++done;
    });
    trailing.add(1, [&] { ++done; });
    began.get_future().wait();
    later = std::thread([&] {
      std::this_thread::sleep_for(50ms);
      go.set_value();
    });
  }
  later.join();
  EXPECT_EQ(done, 1);
}
