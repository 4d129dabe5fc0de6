// A proposed rename map as the text of a file: every line below a comment that says how certain it
// is and why.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/names.h"
#include "analysis/guess/entries.h"

#include <string>

namespace ttrace {

[[nodiscard]] std::string map_text(const MapEntries& entries, const std::string& heading);

// "layers.*.wq + layers.*.wk", "~" for a side without the tensor.
[[nodiscard]] std::string paths_text(const MapEntry& entry, Names side);

// "a, b or c", of many the first ones. Requires: some.
[[nodiscard]] std::string options_text(const MapEntry& entry);

}  // namespace ttrace
