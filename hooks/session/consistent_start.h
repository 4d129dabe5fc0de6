// Makes the passes start from the same parameters.
//
// Thread-safety: on the training thread, before the writer thread exists (HDF5 has one lock).
#pragma once

#include "hooks/base/parameter_map.h"

#include <ttrace/annotations.h>
#include <ttrace/layout.h>

#include <string>
#include <vector>

namespace ttrace {

// DIR/start/rank00000.h5: the parameters as they are.
void store_start(const std::string& directory,
                 const std::vector<Parameter>& parameters,
                 const Layout& layout,
                 const Annotations& annotations);

// Overwrites the parameters by this rank's shards of the reference's, padding untouched. Returns
// the paths of those whose bits differed. Throws UsageError for a parameter that the reference
// does not have (with the nearest name) and for shapes that clash.
[[nodiscard]] std::vector<std::string> load_start(const std::string& reference,
                                                  const std::vector<Parameter>& parameters,
                                                  const Layout& layout,
                                                  const Annotations& annotations);

}  // namespace ttrace
