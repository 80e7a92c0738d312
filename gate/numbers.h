// The numbers of a checkpoint: is each finite? This alone reads the tensors' data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gate/checkpoint.h"

namespace fractus::gate {

struct NotFinite {
  std::string name;
  std::uint64_t nans = 0, infinities = 0;
  std::vector<std::int64_t> first;  // the index of one of them in the tensor: the first in the file's order
};

// Tensors of model_state with a NaN or an infinity, by name. Elements of a storage that no tensor shows do not count.
// The data of floating tensors is read in pieces, once, and its checksums with it. Throws Unreadable.
std::vector<NotFinite> not_finite(const Checkpoint& checkpoint);

// Where element `element` of the storage stands in the view: its index, or nothing where the view does not show it. A
// view that shows elements twice by other strides than 0 is taken to show all between its first and its last.
std::optional<std::vector<std::int64_t>> index_in(const View& view, std::int64_t element);

}  // namespace fractus::gate
