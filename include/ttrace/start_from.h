// Starts a program from parameters that an earlier run has trained.
//
//   ttrace::start_from("runs/1/reference", parameters, layout, annotations);
//
// Thread-safety: call it before the first step of the process's Session, on the thread that trains
// (HDF5 has one lock).
#pragma once

#include <ttrace/annotations.h>
#include <ttrace/layout.h>
#include <ttrace/named_tensor.h>

#include <string>
#include <vector>

namespace ttrace {

// Overwrites every tensor in place by this rank's shard of what the last step of the trace
// `directory` left (its `param_next`). A parameter that the run did not train gets the value that
// the run began with. Layout and precision may differ from the run's; padding keeps its values, and
// optimizer state is not restored. Needs no session. The caller keeps ownership of the tensors.
//
// Throws UsageError for a parameter that the trace does not have (with the nearest name), for
// shapes that contradict each other and for a tensor without dense memory, and FormatError for a
// trace that it cannot read. Parameters before the failing one are overwritten already.
void start_from(const std::string& directory,
                const std::vector<NamedTensor>& parameters,
                const Layout& layout,
                const Annotations& annotations);

}  // namespace ttrace
