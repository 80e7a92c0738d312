// What the kernels over a vocabulary share: rows of h (N,d) against W (V,d), ce_chunk rows at a time. Their shapes, the
// classes of their cases, and what is wrong with an input in either.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "properties/case.h"
#include "properties/driver.h"

namespace fractus::vocabulary {

Dims dims(std::int64_t N, std::int64_t d, std::int64_t V, std::int64_t ce_chunk);

// B 2, T 128. The run's own ce_chunk, 2048, would be one chunk of these rows; 96 leaves a short last one.
Dims training_run();

// Every border of a block of the vocabulary against every way in which ce_chunk lies to N, and what a kernel may treat
// apart.
std::vector<Dims> shapes(std::int64_t block);
rc::Gen<Dims> random_shape(std::int64_t block);

std::vector<std::string> classes(const Case& c, std::int64_t block);
std::vector<std::string> required_classes(std::int64_t block);

// Elements that a call may hold beside inputs and outputs: `matrices` of a chunk's rows by V, a copy of h, and 16
// numbers for each row.
std::int64_t chunk_elements(const Dims& dims, std::int64_t matrices);

// One number of the input is none; which one follows from the seed.
Problem with_nan(Problem problem, std::size_t input, std::uint64_t seed);

}  // namespace fractus::vocabulary
