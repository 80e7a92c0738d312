// Work for both cores of the smallest machine that this is made for.
#pragma once

#include <cstddef>
#include <functional>

namespace fractus {

// Each piece of work by whichever of two threads is free; what one throws ends the others and goes on.
void by_two(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace fractus
