// Which lines of the candidate's program a finding concerns, as far as its trace says.
//
// Thread-safety: free function without shared state.
#pragma once

#include "analysis/findings/report.h"
#include "trace/file/trace_reader.h"

#include <cstddef>
#include <span>

namespace ttrace {

// What all ranks and steps of a trace say.
[[nodiscard]] CodeLines code_lines_of(const Trace& trace);

// Of tensors[index]: "model.py:88 (Attention), called at model.py:120". An input concerns the code
// between the calls of two modules, and so does the gradient of an output, which the consumers'
// backward makes. Empty if the trace knows no line.
[[nodiscard]] SourceLines source_lines(std::span<const TensorVerdict> tensors,
                                       std::size_t index,
                                       const CodeLines& candidate);

}  // namespace ttrace
