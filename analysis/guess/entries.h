// The lines of a proposed rename map: pairings of single tensors, put together to modules and to
// patterns over layers.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/map_entry.h"
#include "analysis/guess/pairings.h"
#include "analysis/rename/rename_map.h"

#include <vector>

namespace ttrace {

struct MapEntries {
  std::vector<MapEntry> tensors;  // in the order of the file
  std::vector<EntryDims> dims;
};

[[nodiscard]] MapEntries entries_of(const GuessState& state);

// Entries for single tensors of which the map says something else than is known of them.
[[nodiscard]] std::vector<MapEntry> corrections(const GuessState& state, const RenameMap& map);

}  // namespace ttrace
