// Figures as inline SVG, in the colours of the page that holds them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reports/facts.h"

namespace fractus {

// A bar for every bin of the histogram, the bound, and the worst of the known-good forms.
std::string histogram_figure(const OutputError& error);

// By series, each in the order of its extents.
std::map<std::string, std::vector<Held>> series_of(const std::vector<Held>& held);

// Bytes over extent, both from 0, of one series with two points or more.
std::string growth_figure(const std::vector<Held>& points);

}  // namespace fractus
