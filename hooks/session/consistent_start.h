// Makes the passes start from the same parameters.
//
// Thread-safety: on the training thread, before the writer thread exists (HDF5 has one lock).
#pragma once

#include "hooks/base/parameter_map.h"
#include "hooks/base/tensor_copy.h"

#include <ttrace/annotations.h>
#include <ttrace/layout.h>

#include <span>
#include <string>
#include <vector>

namespace ttrace {

// DIR/start/rank00000.h5: the parameters as they are.
void store_start(const std::string& directory,
                 const std::vector<Parameter>& parameters,
                 const Layout& layout,
                 const Annotations& annotations);

// A parameter whose bits differed from the reference's.
struct ReplacedStart {
  std::string path;
  // What this rank, and those that the process simulates, began with; none where no other rank
  // holds the same part.
  std::vector<TensorCopy> own;
};

// Overwrites the parameters by this rank's shards of the reference's, padding untouched, and those
// of the ranks that the process simulates, whose layouts follow this rank's. Throws
// UsageError for a parameter that the reference does not have (with the nearest name) and for
// shapes that clash.
[[nodiscard]] std::vector<ReplacedStart> load_start(const std::string& reference,
                                                    const std::vector<Parameter>& parameters,
                                                    std::span<const Layout> ranks,
                                                    const Annotations& annotations);

}  // namespace ttrace
