// A trace in the names and arrangements of the other program: what two programs with different
// module names are compared by.
//
// The result is a trace like any other, of one rank with whole tensors, so that everything that
// reads traces works on it: comparison, consistent start, forced passes, noise.
#pragma once

#include "analysis/rename/rename_map.h"
#include "analysis/rename/rename_options.h"

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace {

struct RenameResult {
  std::size_t tensors = 0;            // written
  std::size_t only_here = 0;          // left out: by the map, the other side does not have them
  std::vector<std::string> warnings;  // entries that matched nothing, and missing parts
};

// Name of the map within a renamed trace.
inline constexpr auto kRenameFile = "rename.yaml";

// Writes the trace in `source` to `target`, with start parameters and noise tables, and adds the
// map as `rename.yaml`. Parts that several ranks hold are merged. A tensor that cannot be merged is
// left out, with a note in the result. Addends of sums and inputs of collectives belong to each
// rank, so they are left out if there are several ranks.
//
// Throws UsageError if two tensors would have one name, if shapes contradict the map (naming tensor
// and entry), if the trace is renamed already, or if `target` is not empty; FormatError for files
// that cannot be read or written.
RenameResult rename_trace(const std::string& source,
                          const std::string& target,
                          const RenameMap& map,
                          const RenameOptions& options = {});

// The map that made a renamed trace. Throws UsageError or FormatError.
[[nodiscard]] RenameMap map_of(const std::string& renamed_trace);

}  // namespace ttrace
