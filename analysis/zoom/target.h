// Which module a zoom looks into, given the first divergence of a check.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/base/zoom_target.h"
#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

namespace ttrace {

// The modules whose operators made the tensor, or the gradient. Where the program calls a module
// without a scope, that is the module around it. Throws UsageError for a tensor that no module
// makes, such as an optimizer's state.
[[nodiscard]] ZoomTarget zoom_target(const TensorId& id, const Trace& reference);

}  // namespace ttrace
