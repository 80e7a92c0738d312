#include "harness/trailing.h"

#include <utility>

namespace fractus {

Trailing::Trailing(std::size_t most_waiting) : most_waiting_(most_waiting), thread_([this] { loop(); }) {}

Trailing::~Trailing() {
  {
    const std::scoped_lock lock(mutex_);
    if (items_.size() > 1) items_.erase(items_.begin() + 1, items_.end());
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Trailing::add(std::size_t weight, std::function<void()> work) {
  std::unique_lock lock(mutex_);
  items_.push_back({weight, std::move(work)});
  waiting_ += weight;
  changed_.notify_all();
  changed_.wait(lock, [this] { return waiting_ <= most_waiting_; });
}

void Trailing::join() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Trailing::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return;
    Item& item = items_.front();  // a deque's elements stay where they are
    if (!thrown_) {
      lock.unlock();
      try {
        item.work();
      } catch (...) {
        thrown_ = std::current_exception();
      }
      item.work = nullptr;
      lock.lock();
    }
    waiting_ -= item.weight;
    items_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace fractus
