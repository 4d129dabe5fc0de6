// Takes one tensor apart: by rank, by row, by index of a dimension, by head.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/close_look.h"
#include "trace/file/trace_reader.h"

#include <cstdint>

namespace ttrace {

// Of a tensor that both sides have; without parts where the two logical tensors cannot be laid side
// by side. `candidate` is the trace of the match's candidate, which says where its ranks are.
// `head_size` is the number of indices of the last dimension per head, 0 without heads.
[[nodiscard]] CloseLook look_closely(const Match& match,
                                     const Trace& candidate,
                                     std::int64_t head_size);

}  // namespace ttrace
