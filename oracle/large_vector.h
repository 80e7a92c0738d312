// Vectors of hundreds of megabytes: to touch their pages for the first time costs as much as what is then computed in
// them, and less where the system is asked for all of them at once.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fractus::oracle {

// A vector of `size` zeros.
template <class T>
std::vector<T> large_vector(std::size_t size) {
  std::vector<T> result;
  result.reserve(size);
#ifdef MADV_POPULATE_WRITE  // a hint: a system that does not know it refuses
  constexpr std::uintptr_t page = 4096;
  const auto begin = reinterpret_cast<std::uintptr_t>(result.data());
  const std::uintptr_t first = (begin + page - 1) / page * page, end = (begin + size * sizeof(T)) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE);
#endif
  result.resize(size);
  return result;
}

}  // namespace fractus::oracle
