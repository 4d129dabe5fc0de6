// Starts a program from parameters that a former run has trained.
//
// Thread-safety: before the session's first step (HDF5 has one lock).
#pragma once

#include <ttrace/annotations.h>
#include <ttrace/export.h>
#include <ttrace/layout.h>
#include <ttrace/session.h>

#include <string>
#include <vector>

namespace ttrace {

// Overwrites every tensor in place by this rank's shard of what the last step of the trace
// `directory` left (its `param_next`), or, of a parameter that it does not train, of what that run
// began with. Layouts and precisions may differ; padding is left alone. Optimizer state is not part
// of it. Works without a session. Throws UsageError for a parameter that the trace lacks (with the
// nearest name) and for shapes that clash, FormatError for a trace that cannot be read.
TTRACE_API void start_from(const std::string& directory,
                           const std::vector<NamedTensor>& parameters,
                           const Layout& layout,
                           const Annotations& annotations);

}  // namespace ttrace
