#include "harness/worker/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "harness/protocol.h"

namespace fractus::worker {
namespace {

constexpr std::size_t band = protocol::guard_bytes;
static_assert(band >= 64, "a block starts one header and one band behind a 64-byte boundary, and is aligned like it");

struct alignas(band) Header {
  std::size_t bytes;
};

std::atomic<bool> poisoning{true};
std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};
std::mutex violations_mutex;
std::vector<std::string> violations;

void count(std::int64_t bytes) {
  const std::int64_t now = live.fetch_add(bytes) + bytes;
  std::int64_t most = peak.load();
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

bool intact(const unsigned char* guard) {
  return std::all_of(guard, guard + band, [](unsigned char byte) { return byte == protocol::poison; });
}

void report(const char* where, std::size_t bytes) {
  const std::scoped_lock lock(violations_mutex);
  if (violations.size() < 16) violations.push_back(fmt::format("wrote {} a block of {} bytes", where, bytes));
}

// Memory: header | band | the block | band.
void release(void* block) {
  if (block == nullptr) return;
  auto* data = static_cast<unsigned char*>(block);
  unsigned char* start = data - band - sizeof(Header);
  const std::size_t bytes = reinterpret_cast<const Header*>(start)->bytes;
  if (!intact(data - band)) report("before", bytes);
  if (!intact(data + bytes)) report("behind", bytes);
  live.fetch_sub(static_cast<std::int64_t>(bytes));
  std::free(start);
}

struct GuardedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    void* start = nullptr;
    if (posix_memalign(&start, band, sizeof(Header) + band + bytes + band) != 0)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "cannot allocate ", bytes, " bytes");
    new (start) Header{bytes};
    unsigned char* data = static_cast<unsigned char*>(start) + sizeof(Header) + band;
    std::memset(data - band, protocol::poison, poisoning ? band + bytes + band : band);
    if (!poisoning) std::memset(data + bytes, protocol::poison, band);
    count(static_cast<std::int64_t>(bytes));
    return {data, data, &release, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void install_allocator() {
  static GuardedAllocator allocator;
  c10::SetCPUAllocator(&allocator, 100);  // above the default's priority
}

void set_poisoning(bool on) { poisoning = on; }
std::int64_t live_bytes() { return live; }
std::int64_t peak_bytes() { return peak; }
void restart_peak() { peak = live.load(); }

std::vector<std::string> take_violations() {
  const std::scoped_lock lock(violations_mutex);
  return std::exchange(violations, {});
}

}  // namespace fractus::worker
