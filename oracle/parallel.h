// Work on independent pieces, each done by whichever thread is free: what a piece computes does not depend on their
// number.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace fractus::oracle {

// work(i) for every i in [0, count), on `threads` threads. `work` must not throw.
template <class Work>
void for_each(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads && static_cast<std::size_t>(i) < count; ++i) helpers.emplace_back(loop);
  loop();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace fractus::oracle
