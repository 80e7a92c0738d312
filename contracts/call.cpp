#include "contracts/call.h"

#include <fmt/format.h>

#include <stdexcept>

namespace fractus {

std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::offset: return "offset";
    case Layout::transposed: return "transposed";
    case Layout::column_major: return "column_major";
    case Layout::sliced: return "sliced";
    case Layout::packed: return "packed";
    case Layout::padded: return "padded";
    case Layout::shared: return "shared";
    case Layout::expanded: return "expanded";
    case Layout::expanded_middle: return "expanded_middle";
    case Layout::expanded_inner: return "expanded_inner";
    case Layout::broadcast: return "broadcast";
  }
  return "?";
}

Layout layout_from(std::string_view text) {
  std::string wanted;
  for (Layout layout : all_layouts) {
    if (text == name(layout)) return layout;
    wanted += fmt::format("{}{}", wanted.empty() ? "" : ", ", name(layout));
  }
  throw std::invalid_argument(fmt::format("unknown layout '{}': wanted one of {}", text, wanted));
}

std::vector<bool> expanded_dims(Layout layout, std::size_t rank) {
  std::vector<bool> expanded(rank, layout == Layout::broadcast);
  if (rank == 0) return expanded;
  if (layout == Layout::expanded) expanded.front() = true;
  if (layout == Layout::expanded_middle && rank >= 3) expanded[1] = true;
  if (layout == Layout::expanded_inner) expanded.back() = true;
  return expanded;
}

std::optional<std::size_t> shared_with(const std::vector<std::optional<Array>>& inputs, std::size_t i) {
  for (std::size_t j = 0; j < i; ++j)
    if (inputs[j] && inputs[j]->shape == inputs[i]->shape) return j;
  return std::nullopt;
}

Layout layout_of(const Layouts& layouts, const std::string& tensor) {
  const auto found = layouts.find(tensor);
  return found == layouts.end() ? Layout::contiguous : found->second;
}

}  // namespace fractus
