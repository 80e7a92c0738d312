// Cutting arrays along one extent and joining them again.
#pragma once

#include <cstdint>
#include <vector>

#include "contracts/array.h"
#include "contracts/field_call.h"

namespace fractus {

// The part [start, start + length) of dimension `dim`.
Array slice(const Array& array, std::size_t dim, std::int64_t start, std::int64_t length);
Residues slice(const Residues& residues, std::size_t dim, std::int64_t start, std::int64_t length);

// Arrays that differ in dimension `dim` only, one behind the other. At least one.
Array joined(const std::vector<Array>& parts, std::size_t dim);
Residues joined(const std::vector<Residues>& parts, std::size_t dim);

// Makes the values equal along dimension `dim`: those of its index 0 everywhere.
void repeat_first(Array& array, std::size_t dim);

}  // namespace fractus
