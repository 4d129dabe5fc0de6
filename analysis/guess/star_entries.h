// Puts entries of a rename map that differ in numbers of layers alone together to one, and brings
// them into an order in which the first one that matches a name is the right one.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/guess/map_entry.h"

#include <vector>

namespace ttrace {

[[nodiscard]] std::vector<MapEntry> with_stars(std::vector<MapEntry> entries);

}  // namespace ttrace
