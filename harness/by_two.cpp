#include "harness/by_two.h"

#include <atomic>
#include <exception>
#include <thread>

namespace fractus {

void by_two(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr thrown[2];
  const auto loop = [&](std::exception_ptr& mine) {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      mine = std::current_exception();
      next = count;
    }
  };
  if (count > 1) {
    std::thread other([&] { loop(thrown[1]); });
    loop(thrown[0]);
    other.join();
  } else {
    loop(thrown[0]);
  }
  for (const std::exception_ptr& each : thrown)
    if (each) std::rethrow_exception(each);
}

}  // namespace fractus
