// Work on a thread of its own, in the order in which it was given and at most so much of it behind.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace fractus {

class Trailing {
 public:
  explicit Trailing(std::size_t most_waiting);
  ~Trailing();  // what has not begun is dropped
  Trailing(const Trailing&) = delete;
  Trailing& operator=(const Trailing&) = delete;

  // Waits until what is behind weighs at most `most_waiting`. The work is gone, with all that it holds, when it has
  // run.
  void add(std::size_t weight, std::function<void()> work);

  // Waits until all is done. Throws what a work has thrown, after which no other was begun.
  void join();

 private:
  struct Item {
    std::size_t weight;
    std::function<void()> work;
  };
  void loop();

  const std::size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // the first is the one in course
  std::size_t waiting_ = 0;
  bool closed_ = false;
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace fractus
