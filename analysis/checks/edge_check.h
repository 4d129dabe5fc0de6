// Is every module given what another one returned? The edges of the reference's graph (Edge),
// looked up in the candidate with tolerance zero.
//
// Where a module of the reference takes the very memory that another one has returned, the same
// module of the candidate must take the same values: the same memory, or a copy that is bit for bit
// what the candidate's own producer has recorded (both merged over the ranks). A stale buffer, an
// overwritten input, a gather in the wrong order between two modules show here even where round-off
// would hide them. Where one producer is a sum over ranks and the other its addends, the sum's
// rounding lies between them; two producers that the reference has in one memory are the same then.
//
// The other way round, the reference may have recorded a copy where a module of the candidate takes
// the very memory. If the reference's copy is bit for bit what its own producer returned, the
// producer's output answers for the input.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/report.h"
#include "trace/file/trace_reader.h"

#include <span>
#include <vector>

namespace ttrace {

// Changes `tensors`, which are in the reference's order: an input that only one side has recorded
// is judged by its source instead of being missing, and an input that comes from elsewhere
// than in the reference is added. Only edges whose producer or consumer is among `tensors` count.
[[nodiscard]] EdgeCoverage check_edges(const Trace& reference,
                                       const Trace& candidate,
                                       std::span<const Match> matches,
                                       std::vector<TensorVerdict>& tensors);

}  // namespace ttrace
