#include "contracts/call.h"

#include <stdexcept>

namespace fractus {

std::string_view name(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::transposed: return "transposed";
    case Layout::sliced: return "sliced";
    case Layout::expanded: return "expanded";
  }
  return "?";
}

Layout layout_from(std::string_view text) {
  for (Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::expanded})
    if (text == name(layout)) return layout;
  throw std::invalid_argument("unknown layout '" + std::string(text) +
                              "': wanted contiguous, transposed, sliced or expanded");
}

}  // namespace fractus
